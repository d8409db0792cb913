"""A link on which the client sends: its route, its credit, and the outcomes of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.access.table import Operation
from escrowmq.core.branches.branch import Publication
from escrowmq.core.budget import COPIES, PUBLISH
from escrowmq.core.conditions import BrokerError
from escrowmq.core.engine import Receipt
from escrowmq.core.leftover import WAIT
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.placing import WIDE
from escrowmq.core.termini.arrivals import Arrival
from escrowmq.wire.amqp10.addresses import TOPIC_CAPABILITIES
from escrowmq.wire.amqp10.answers import MASK
from escrowmq.wire.amqp10.codec import states
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SECOND
from escrowmq.wire.amqp10.codec.sections import check_sizes, split_head
from escrowmq.wire.amqp10.codec.states import Received, Rejected, Released
from escrowmq.wire.amqp10.codec.termini import Target
from escrowmq.wire.amqp10.delays import delayed_among, waiting_queue
from escrowmq.wire.amqp10.errors import (
    ILLEGAL_STATE,
    LIMIT_EXCEEDED,
    PRECONDITION_FAILED,
    RESOURCE_DELETED,
    STOLEN,
    TRANSACTION_ROLLBACK,
    TRANSFER_LIMIT_EXCEEDED,
    AmqpFault,
    error_of,
    link_fault,
    refusal,
)
from escrowmq.wire.amqp10.expiry import dated_among, expiring
from escrowmq.wire.amqp10.nodes import Nodes
from escrowmq.wire.amqp10.publication import Destination, Publications
from escrowmq.wire.amqp10.resume import reverted
from escrowmq.wire.amqp10.resuming import encoded_state, state_of
from escrowmq.wire.amqp10.subscriptions import own, without_own

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.arrivals import Partial
    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.codec.performatives import Attach, Flow
    from escrowmq.wire.amqp10.codec.states import DeliveryState
    from escrowmq.wire.amqp10.link import Link
    from escrowmq.wire.amqp10.nodes import DynamicNode
    from escrowmq.wire.amqp10.transactions import LocalTransaction

_FORMS: Final = 1000
"""Envelopes that a link remembers."""
_NONE: Final = frozenset[int]()
_FULL: Final = encode_composite(Rejected(error_of(LIMIT_EXCEEDED, "a queue is full")))


class PublishForm:
    """An envelope and the queues that it is routed to, while `version` and `allowed` are current.

    With `apart`, routing depends on the headers of each message.
    """

    __slots__ = ("_own", "allowed", "apart", "envelope", "queues", "version")

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.queues: tuple[Queue, ...] = ()
        self.version = self.allowed = -1
        self.apart = False
        self._own: tuple[Envelope, Envelope] | None = None

    def of_publisher(self, envelope: Envelope, container: str) -> Envelope:
        """Return the envelope of a message that waits, which names its publisher (`subscriptions.own`). Equal ones are
        one object, so they form runs.
        """
        if not envelope.exchange:
            return envelope  # queues that are addressed by their names take everybody's messages
        if self._own is None or self._own[0] is not envelope:
            self._own = envelope, own(envelope, container)
        return self._own[1]


class Mode:
    """The way in which a client posts: whether it has settled the message, and the transaction of the post, if any."""

    __slots__ = ("settled", "transaction")

    def __init__(self, *, settled: bool, transaction: LocalTransaction | None = None) -> None:
        self.settled = settled
        self.transaction = transaction


class Post(NamedTuple):
    """Messages of one form and mode with consecutive delivery numbers. `tags` is empty if they are settled. The
    messages behind the first `unchecked` ones are known to ask for no delay, and to have no absolute expiry time.
    """

    form: PublishForm
    contents: list[bytes]
    first: int
    tags: list[bytes]
    mode: Mode
    unchecked: int


class ProducerLink:
    """The broker's end of a link from a producer. Without a `route`, each message names its address (`to`)."""

    __slots__ = (
        "_allowed",
        "_by_envelope",
        "_count",
        "_limit",
        "_live",
        "_loan",
        "_node",
        "_outcomes",
        "_publications",
        "_queue",
        "_route",
        "_second",
        "_topic",
        "forms",
        "link",
    )

    def __init__(self, link: Link, request: Attach, route: Destination | None, node: DynamicNode | None = None) -> None:
        self.link = link
        self._route = route
        self._node = node
        self._second = request.rcv_settle_mode == SECOND
        # A topic takes messages although nobody subscribes to it: Qpid JMS reports a released message as an error.
        target = request.target
        self._topic = isinstance(target, Target) and not TOPIC_CAPABILITIES.isdisjoint(target.capabilities)
        source = request.source
        self._outcomes = frozenset(map(str, source.outcomes)) if source is not None and source.outcomes else None
        self.forms: dict[bytes, PublishForm] = {}
        """By the sections before the content, for a route with a key. `transfers` reads it for each message."""
        self._by_envelope: dict[Envelope, PublishForm] = {}
        self._publications = Publications(link.session.connection.user, route, Nodes(link.session.connection).route)
        self._count = request.initial_delivery_count or 0  # the delivery-count
        self._limit = self._count  # the delivery-count up to which the client has credit
        self._allowed = self._count  # the highest limit so far: transfers may be on their way when credit is taken back
        self._loan: Loan | None = None
        self._queue: Queue | None = None  # the target, if it is a queue
        self._live: set[bytes] = set()  # tags of this turn's unsettled posts, unless the client settles second

    @property
    def second(self) -> bool:
        """Whether the client settles only after it has received the outcome."""
        return self._second

    def lend(self, loan: Loan) -> None:
        """Note that the link has its terminus. It keeps the tags of posts if the client settles second."""
        self._loan = loan
        route = self._route
        if route is not None and not route.exchange:
            self._queue = self.link.session.connection.vhost.queues.get(route.routing_key or "")
            if self._queue is not None:
                self._queue.producers += 1

    # -- core.termini.loan.Borrower

    def stolen(self) -> None:
        """Detach the link, because another one of the same name has its terminus now (SET-12)."""
        self._interrupt()
        self.link.fail(link_fault(STOLEN, "another link of the same name was attached"))

    def deleted(self) -> None:
        """Detach the link, because its terminus was ended."""
        self.link.fail(link_fault(RESOURCE_DELETED, "the link's terminus was ended"))

    def relieved(self, text: str, *, closed: bool) -> None:
        """Detach the link, because memory is short."""
        self.link.suspend(link_fault(LIMIT_EXCEEDED, text), closed=closed)

    def check(self) -> None:
        """Check that the user may publish to the link's target. Raises BrokerError."""
        if self._route is not None:
            connection, exchange = self.link.session.connection, self._route.exchange
            connection.door.check_publish(exchange, (self._route.routing_key or "",))
            connection.vhost.exchange_for_publish(exchange)

    @property
    def _kept(self) -> int:
        return self._loan.terminus.arrivals.count if self._loan is not None else 0

    # -- credit

    def spend(self, count: int) -> None:
        """Count `count` deliveries of the client. Raises AmqpFault if they exceed its credit."""
        self._count += count
        if self._count > self._allowed:
            raise link_fault(TRANSFER_LIMIT_EXCEEDED, "more deliveries than the credit allows")
        if (self._limit - self._count) * 2 < self.link.session.connection.limits.link_credit:
            self.link.session.credit_later(self)

    def grant(self, *, echo: bool = False) -> None:
        """Grant credit, unless at least half of it is left, or publishers are blocked."""
        session = self.link.session
        limits = session.connection.limits
        if self.link.detaching or self.link.end is not self:
            return
        if not self._second:
            self._live.clear()  # they are answered, and settled thereby
        credit = 0
        if not session.connection.gate.reason:
            credit = max(min(limits.link_credit, limits.unsettled - self._kept), 0)
        left = self._limit - self._count
        if echo or credit == 0 < left or (credit and left * 2 < credit):
            self._limit = self._count + credit
            self._allowed = max(self._allowed, self._limit)
            session.send_flow(
                handle=self.link.handle, delivery_count=self._count & MASK, link_credit=credit, drain=False
            )

    def block(self, *, on: bool) -> None:
        """Take the credit back, or grant it again."""
        self.grant()

    def flow(self, flow: Flow) -> None:
        """Answer the client, if it asks for the state of the link. Its own delivery-count may have advanced."""
        if flow.delivery_count is not None:
            ahead = (flow.delivery_count - self._count) & MASK
            if 0 < ahead <= self._allowed - self._count:
                self._count += ahead
        if flow.echo:
            self.grant(echo=True)

    # -- messages

    def form_for(self, payload: bytes) -> tuple[PublishForm, bytes]:
        """Return form and content of the message in `payload`. Raises AmqpFault, BrokerError, CodecError."""
        most = self.link.session.connection.limits.header_size
        if len(payload) > most:
            check_sizes(payload[split_head(payload)[1] :], most)
        envelope, content = self._publications.read(payload)
        form = self._by_envelope.get(envelope)
        if form is None:
            if len(self._by_envelope) >= _FORMS:
                self._by_envelope.clear()
            form = self._by_envelope[envelope] = PublishForm(envelope)
        if self._route is not None and self._route.routing_key is not None and not envelope.extra_keys:
            if len(self.forms) >= _FORMS:
                self.forms.clear()
            self.forms[payload[: len(payload) - len(content)]] = form
        return form, content

    def refuse(self, number: int, tag: bytes, content: bytes, error: BrokerError | AmqpFault, mode: Mode) -> None:
        """Refuse one message. It costs the link, unless the message itself named the address and can be rejected.

        Raises AmqpFault.
        """
        fault = refusal(error) if isinstance(error, BrokerError) else error
        transaction = mode.transaction
        if mode.settled or self._route is not None or fault.condition == TRANSFER_LIMIT_EXCEEDED:
            if transaction is not None:
                transaction.fail(link_fault(TRANSACTION_ROLLBACK, f"a post was refused: {fault.text}"))
            raise fault
        self._reject(number, tag, content, fault, mode)

    def _reject(self, number: int, tag: bytes, content: bytes, fault: AmqpFault, mode: Mode) -> None:
        """Answer an unsettled message with the outcome rejected."""
        rejected = Rejected(fault.error())
        if mode.transaction is None:
            state = encode_composite(rejected)
            self._note([tag], [content], Disposition.REJECTED, state)
        else:
            state = mode.transaction.state(rejected)
        self._answer(number, number, [tag], state, "amqp:rejected:list")

    def publish(self, post: Post) -> Iterator[bool] | None:
        """Publish messages, and answer them when the log has them. Nothing more may be published on the connection
        until the result, if there is one, has come to its end. Raises AmqpFault, BrokerError.
        """
        connection = self.link.session.connection
        engine, form, contents = connection.broker.engine, post.form, post.contents
        if not post.mode.settled and not self._second:
            self._check_tags(post.tags)
        self.resolve(form)
        queues = form.queues
        engine.requests.left -= PUBLISH
        if len(queues) <= WIDE or post.mode.transaction is not None:  # others are charged for each piece
            engine.requests.left -= len(queues) * (1 + len(contents) // COPIES)
        late = dated = _NONE
        if post.unchecked:
            some = contents if post.unchecked == len(contents) else contents[: post.unchecked]
            late, dated = delayed_among(some), dated_among(some)
        if form.apart or late or dated:
            return self._publish_apart(post, late, dated)
        return self._publish(form.envelope, contents, queues, post.first, post.tags, post.mode)

    def _publish_apart(self, post: Post, late: frozenset[int], dated: frozenset[int]) -> Iterator[bool]:
        """Publish messages one by one, because some ask for a delay (`late`) or expire at a given time (`dated`), or
        because their headers decide on their queues.
        """
        envelope, now = post.form.envelope, self.link.session.connection.broker.engine.now
        for i, content in enumerate(post.contents):
            own = expiring(envelope, content, now) if i in dated else envelope
            rest = self._publish_one(post, i, own, late=i in late)
            if rest is not None:
                yield from rest

    def _publish_one(self, post: Post, i: int, envelope: Envelope, *, late: bool) -> Iterator[bool] | None:
        """Publish message `i` of `post`, whose queues or expiry depend on its content. With `late` it may ask for a
        delay.
        """
        connection = self.link.session.connection
        form, content, number, tags = post.form, post.contents[i], post.first + i, post.tags[i : i + 1]
        queues = form.queues
        try:
            held = waiting_queue(connection, envelope, content) if late else None
            if held is not None:
                queues, envelope = (held,), form.of_publisher(envelope, connection.container)
            elif form.apart:
                queues = without_own(
                    connection.broker.engine.route(connection.vhost, envelope, content), connection.container
                )
        except BrokerError as error:
            if post.mode.settled:
                self.refuse(number, b"", content, error, post.mode)
            else:
                self._reject(number, tags[0], content, refusal(error), post.mode)
            return None
        return self._publish(envelope, [content], queues, number, tags, post.mode)

    def _publish(
        self,
        envelope: Envelope,
        contents: list[bytes],
        queues: tuple[Queue, ...],
        first: int,
        tags: list[bytes],
        mode: Mode,
    ) -> Iterator[bool] | None:
        last = first + len(contents) - 1
        traffic = self.link.session.connection.traffic
        traffic.received += len(contents)
        if mode.transaction is not None:
            self._enlist(mode.transaction, Publication(envelope, contents, queues), first, tags, settled=mode.settled)
            return None
        if not queues:
            if mode.settled or self._topic:
                traffic.dropped += len(contents)
            else:
                traffic.returned += len(contents)
            if not mode.settled and self._topic:
                traffic.answered(len(contents))
                self._note(tags, contents, Disposition.ACCEPTED)
                self._answer(first, last, tags, states.ACCEPTED, "")
            elif not mode.settled:
                traffic.answered(0, len(contents))
                self._note(tags, contents, Disposition.RELEASED)
                self._answer(first, last, tags, states.RELEASED, "amqp:released:list")
            return None
        if mode.settled or not self._second or self._loan is None:
            receipt = self.link.session.connection.broker.engine.publish(envelope, contents, queues, divided=True)
        else:
            receipt = self._loan.post(envelope, contents, queues, tags)
        if receipt.placings:
            return self._placed(receipt, contents, first, () if mode.settled else tags)
        if not mode.settled:
            self._answer_receipt(receipt, contents, first, tags)
        return None

    def _placed(self, receipt: Receipt, contents: list[bytes], first: int, tags: Sequence[bytes]) -> Iterator[bool]:
        """Answer messages when they are in all of their queues. `tags` is empty if they are settled."""
        (placing,) = receipt.placings
        while not placing.done:
            yield WAIT
        if tags and self.link.end is self:
            self._answer_receipt(Receipt(placing.lsn, placing.refused), contents, first, list(tags))

    def wide(self, form: PublishForm) -> bool:
        """Whether messages of this form may go to very many queues, so that publishing them may take several turns."""
        try:
            self.resolve(form)
        except BrokerError:
            return False  # it is refused when it is published
        return form.apart or len(form.queues) > WIDE

    def _answer_receipt(self, receipt: Receipt, contents: list[bytes], first: int, tags: list[bytes]) -> None:
        """Answer messages that were published, of which queues may have refused some."""
        last = first + len(contents) - 1
        refused = len(receipt.refused)
        self.link.session.connection.traffic.answered(len(contents) - refused, refused)
        begin = 0
        for i in receipt.refused:
            if i > begin:
                self._answer(first + begin, first + i - 1, tags[begin:i], states.ACCEPTED, "", receipt.lsn)
            self._note(tags[i : i + 1], contents[i : i + 1], Disposition.REJECTED, _FULL)
            self._answer(first + i, first + i, tags[i : i + 1], _FULL, "amqp:rejected:list", receipt.lsn)
            begin = i + 1
        if begin < len(contents):
            self._answer(first + begin, last, tags[begin:], states.ACCEPTED, "", receipt.lsn)

    def _enlist(
        self, transaction: LocalTransaction, work: Publication, first: int, tags: list[bytes], *, settled: bool
    ) -> None:
        """Post messages in a transaction (section 4.4.1)."""
        last = first + len(work.contents) - 1
        loan = self._loan if self._second and not settled else None
        state, symbol = transaction.post(work, loan, tags, needs_queue=not self._topic)
        if not settled:
            self._answer(first, last, tags, state, symbol)
        elif symbol and transaction.fault is None:
            # Nobody would learn of the loss of a settled post, so the transaction must not commit.
            transaction.fail(link_fault(TRANSACTION_ROLLBACK, "a settled message of the transaction has no queue"))

    # -- resumed messages

    def knows(self, tag: bytes) -> bool:
        """Return whether the message with this tag has arrived, at least in part, and is not settled by the client."""
        if self._loan is None:
            return False
        arrivals = self._loan.terminus.arrivals
        return tag in arrivals or (arrivals.partial is not None and arrivals.partial.tag == tag)

    def partial(self, tag: bytes) -> Partial | None:
        """Remove and return what an earlier link has received of the message with this tag."""
        return None if self._loan is None else self._loan.terminus.arrivals.take_partial(tag)

    def turn_away(self, number: int, tag: bytes, error: BrokerError | None, mode: Mode) -> None:
        """Answer a message of which not everything is there: the user holds too much (`error`), or it is not the
        message that arrived in part. Raises AmqpFault.
        """
        if mode.settled:
            text = "a resumed delivery does not continue the message that arrived in part"
            fault = link_fault(ILLEGAL_STATE, text) if error is None else refusal(error)
            if mode.transaction is not None:
                mode.transaction.fail(link_fault(TRANSACTION_ROLLBACK, f"a post was refused: {fault.text}"))
            raise fault
        if error is not None:
            self._reject(number, tag, b"", refusal(error), mode)
            return
        state = states.RELEASED if mode.transaction is None else mode.transaction.state(Released())
        if mode.transaction is None:
            self._note([tag], [b""], Disposition.RELEASED)
        self._answer(number, number, [tag], state, "amqp:released:list")

    def forget(self, tag: bytes) -> None:
        """Forget a message that the client has settled, or whose delivery it has aborted."""
        if self._loan is not None:
            self._loan.forget((tag,))
        self.link.session.credit_later(self)

    def abort(self, tag: bytes) -> None:
        """Forget a message whose delivery the client resumes and aborts. It will send it again as a new one, so an open
        transaction in which it was posted cannot commit any more.
        """
        owner = None if self._loan is None else self._loan.terminus.arrivals.owner(tag)
        if owner is not None:
            owner.give_up("a post of the transaction was aborted")
        self.forget(tag)

    def resume_outcome(self, number: int, tag: bytes, state: DeliveryState | None, *, settled: bool) -> None:
        """Resume a message without its content. If the client settles it, it is over. Otherwise the client's outcome
        counts, if it has one, and the broker settles.
        """
        arrival = self._loan.terminus.arrivals.get(tag) if self._loan is not None else None
        outcome = reverted(state)
        if not settled and arrival is not None and (outcome is None or isinstance(outcome, Received)):
            self._answer_arrival(number, tag, arrival)
            return
        self.forget(tag)
        if not settled and outcome is not None:
            self.link.session.answer(RECEIVER, number, number, settled=True, state=encoded_state(outcome))

    def resume_message(self, post: Post) -> Iterator[bool] | None:
        """Resume a message with its whole content: it is published, as by `publish`, unless it is the one that had
        arrived (SET-9). Raises AmqpFault, BrokerError.
        """
        (content,), (tag,) = post.contents, post.tags
        arrival = self._loan.recognised(tag, content) if self._loan is not None else None
        if arrival is None:
            return self.publish(post)
        self._answer_arrival(post.first, tag, arrival)
        return None

    def _answer_arrival(self, number: int, tag: bytes, arrival: Arrival) -> None:
        """Tell the client the outcome of a message that had arrived, when that is on disk."""
        state = encoded_state(state_of(arrival))
        symbol = "" if arrival.outcome is Disposition.ACCEPTED else f"amqp:{arrival.outcome.name.lower()}:list"
        self._answer(number, number, [tag], state, symbol, self.link.session.connection.broker.log.end_lsn)

    def _note(self, tags: list[bytes], contents: list[bytes], outcome: Disposition, detail: bytes = b"") -> None:
        """Keep the outcome of messages that were not enqueued, until the client settles them."""
        if self._second and self._loan is not None:
            self._loan.terminus.arrivals.check_new(tags)
            for tag, content in zip(tags, contents, strict=True):
                self._loan.note(tag, outcome, content, detail)

    def _check_tags(self, tags: list[bytes]) -> None:
        fresh = set(tags)
        if len(fresh) != len(tags) or (self._live and not self._live.isdisjoint(fresh)):
            raise link_fault(ILLEGAL_STATE, "a delivery tag was used again before it was settled")
        self._live = self._live | fresh if self._live else fresh
        self.link.session.credit_later(self)  # so that `grant` is called at the end of the turn

    def _answer(self, first: int, last: int, tags: list[bytes], state: bytes, symbol: str, after: int = 0) -> None:
        """Answer the posts from `first` to `last`. `symbol` names an outcome that the client may have excluded."""
        if symbol and self._outcomes is not None and symbol not in self._outcomes:
            raise link_fault(PRECONDITION_FAILED, f"the outcome is {symbol}, which the source does not list")
        session = self.link.session
        session.answer(RECEIVER, first, last, settled=not self._second, state=state, after=after)
        if self._second:
            session.posts.add(self, first & MASK, tags)

    def resolve(self, form: PublishForm) -> None:
        """Check the permission to publish and find the queues, unless both are known. Raises BrokerError."""
        connection = self.link.session.connection
        vhost, access, envelope = connection.vhost, connection.broker.access, form.envelope
        if form.version == vhost.version and form.allowed == access.version:
            return
        connection.door.check_publish(envelope.exchange, (envelope.routing_key, *envelope.extra_keys))
        vhost.exchange_for_publish(envelope.exchange)
        engine = connection.broker.engine
        reply = engine.direct.get((vhost.name, envelope.routing_key)) if not envelope.exchange else None
        form.apart = reply is None and vhost.needs_content(envelope.exchange)
        if reply is not None:
            form.queues = (reply,)
        else:
            routed = () if form.apart else engine.route(vhost, envelope)
            form.queues = without_own(routed, connection.container)
        form.version = vhost.version if reply is None else -1  # a reply address may be gone at the next publish
        form.allowed = access.version

    def settled(self, tags: list[bytes]) -> None:
        """The client has settled posts: their tags may be used again."""
        if self._loan is not None:
            self._loan.forget(tags)
        self.link.session.credit_later(self)

    # -- the end

    def _interrupt(self) -> None:
        """Leave a message of which more is to come with the terminus, if the client settles second (SET-4)."""
        if self._second and self._loan is not None:
            self.link.session.connection.interrupt_parts(self.link, self._loan)

    def release(self, *, closed: bool) -> int:
        """Give the terminus back. Return the LSN that the answer waits for."""
        session, loan = self.link.session, self._loan
        if self._queue is not None:
            self._queue.producers -= 1
            self._queue = None
        after = 0
        if loan is not None:
            if closed:
                session.forget_loan(loan)
                after = loan.close()
            else:
                self._interrupt()
                loan.detach()
        if closed:
            session.posts.forget(self)
            if self._node is not None:
                self._node.close()
        self._live.clear()
        self.forms.clear()
        self._by_envelope.clear()
        del self._publications  # it refers to the connection
        session.connection.forget_parts(self.link)
        return after

    def forbidden(self) -> bool:
        """Whether the user may no longer publish to the target. Links without a target are checked for each message."""
        route = self._route
        if route is None:
            return False
        return not self.link.session.connection.door.allows(
            Operation.PUBLISH, exchange=route.exchange, key=route.routing_key or ""
        )

    def describe(self) -> dict[str, object]:
        """Return the link's entry in lists."""
        route = self._route
        return {
            "address": "" if route is None else route.routing_key or route.exchange,
            "credit": self._limit - self._count,
            "unsettled": self._kept,
        }
