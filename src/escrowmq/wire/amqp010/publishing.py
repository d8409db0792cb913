"""IncomingTransfers of one session: routing, transactions, and what becomes of messages without a queue."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.access.holdings import STEP
from escrowmq.core.branches.branch import Publication
from escrowmq.core.budget import COPIES, PUBLISH
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.leftover import WAIT
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.placing import WIDE
from escrowmq.wire.amqp010.codec.spec import MessageAccept, MessageReject, MessageTransfer, RejectCode
from escrowmq.wire.amqp010.content import PROTOCOL
from escrowmq.wire.amqp010.local import NO_LOCAL, for_others
from escrowmq.wire.amqp010.ports import Reply
from escrowmq.wire.amqp010.sequence import wire_ranges
from escrowmq.wire.outbox import LARGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.core.engine import Receipt
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp010.ports import SessionPort, Work
    from escrowmq.wire.outbox import Piece

LONGEST_TTL: Final = 315_360_000_000
"""The longest time to live, in milliseconds: ten years. Longer ones are shortened."""
_FORMS: Final = 1024
_FORM_BYTES: Final = 800  # the estimated memory of a form
_LONGEST_RUN: Final = 1000
_LOOKED_AT: Final = 100  # consumers of a queue that are looked at for an immediate message


class TransferAddress(NamedTuple):
    """What the envelope of a message has: messages with equal ones can form runs. `ttl` is in milliseconds."""

    exchange: str
    routing_key: str
    durable: bool
    priority: int
    ttl: int | None


class Wishes(NamedTuple):
    """What the publisher wants for its messages. If they are to be accepted `explicitly`, it is told which are."""

    explicit: bool = False
    discard_unroutable: bool = False
    immediate: bool = False


class TransferForm:
    """The envelope of publishes that look alike, and the queues to which they go.

    `queues` is valid while `version` equals the version of the topology and `allowed` that of the access rules. If the
    messages are to be routed `apart`, their headers or contents decide.
    """

    __slots__ = ("allowed", "apart", "envelope", "queues", "version")

    def __init__(self, address: TransferAddress) -> None:
        self.envelope = Envelope(
            address.exchange,
            address.routing_key,
            protocol=PROTOCOL,
            durable=address.durable,
            priority=address.priority,
            ttl=address.ttl,
        )
        self.queues: tuple[Queue, ...] = ()
        self.apart = False
        self.version = self.allowed = -1


class IncomingTransfers:
    """The publishes of one session, which are put off until something else follows them: those that look alike are
    published together. It is a part of the session (`ports.SessionPart`).
    """

    def __init__(self, session: SessionPort) -> None:
        self._session = session
        self._forms: dict[TransferAddress, TransferForm] = {}
        self._counted = 0
        # The run that was read and is not published yet: messages of one form with consecutive numbers.
        self._form: TransferForm | None = None
        self._wishes = Wishes()
        self._first = 0
        self._contents: list[bytes] = []

    def form(self, address: TransferAddress) -> TransferForm:
        """Return the form of messages with this address."""
        form = self._forms.get(address)
        if form is None:
            if len(self._forms) >= _FORMS or not self._session.has_room:
                self._forms.clear()
            form = self._forms[address] = TransferForm(address)
            self.count_remembered()
        return form

    def count_remembered(self) -> None:
        """Count what is remembered for the user and the virtual host, if it has changed noticeably (FAIR-2)."""
        held = self.counted_bytes
        if abs(held - self._counted) >= STEP:
            self._counted = held
            self._session.count_held()

    def add(self, form: TransferForm, wishes: Wishes, number: int, content: bytes) -> None:
        """Add a message to the run, or begin another one with it."""
        contents = self._contents
        if form is not self._form or wishes is not self._wishes or number != self._first + len(contents):
            self.flush()
            if self._session.ending:
                return
            self._form, self._wishes, self._first, contents = form, wishes, number, self._contents
            self._session.flush_later(self)
        contents.append(content)
        if len(contents) >= _LONGEST_RUN or len(content) >= LARGE:
            self.flush()

    def add_all(self, form: TransferForm, wishes: Wishes, first: int, contents: list[bytes]) -> None:
        """Do `add` for messages with consecutive numbers. Faults end the session."""
        if form is self._form and wishes is self._wishes and first == self._first + len(self._contents):
            self._contents += contents
        else:
            self._session.flush_parts()
            self._form, self._wishes, self._first, self._contents = form, wishes, first, contents
            self._session.flush_later(self)
        if len(self._contents) >= _LONGEST_RUN:
            self._session.flush_parts()

    def flush(self) -> None:
        """Publish the messages that were read. A fault ends the session, and is said of the first of them."""
        form, contents, first = self._form, self._contents, self._first
        if form is None:
            return
        self._form, self._contents = None, []
        try:
            outcome = self.publish(form, contents, first, self._wishes)
        except BrokerError as error:
            self._session.refuse(error, first, MessageTransfer.CODE)
            return
        if isinstance(outcome, Reply):
            self._session.answer_run(first, first + len(contents) - 1, outcome.after)
        else:
            self._session.await_rest(self._finish(outcome, first, len(contents)))

    def _finish(self, rest: Work, first: int, count: int) -> Iterator[bool | None]:
        """Complete the commands of a run when the rest of the work is done."""
        try:
            reply = yield from rest
        except BrokerError as error:
            self._session.refuse(error, first, MessageTransfer.CODE)
            return
        self._session.answer_run(first, first + count - 1, reply.after if reply is not None else 0)

    def publish(self, form: TransferForm, contents: list[bytes], first: int, wishes: Wishes) -> Reply | Work:
        """Publish messages whose commands have numbers from `first` on. Raises BrokerError."""
        self._resolve(form)
        self._session.traffic.received += len(contents)
        if not form.apart:
            return self._publish(form.envelope, form.queues, contents, first, wishes)
        return self._publish_apart(form, contents, first, wishes)

    def _publish_apart(self, form: TransferForm, contents: list[bytes], first: int, wishes: Wishes) -> Work:
        """Publish messages that are routed one by one."""
        session, last = self._session, 0
        engine = session.broker.engine
        for number, content in enumerate(contents, first):
            queues = engine.route(session.vhost, form.envelope, content)
            done = self._publish(form.envelope, queues, [content], number, wishes)
            reply = done if isinstance(done, Reply) else (yield from done)
            last = max(last, reply.after if reply is not None else 0)
            if engine.requests.left <= 0:
                yield None
        return Reply(after=last)

    def _resolve(self, form: TransferForm) -> None:
        """Check the permission to publish and find the queues, unless both are known. Raises NOT_FOUND, ACCESS_REFUSED
        or PRECONDITION_FAILED.
        """
        session = self._session
        vhost, access = session.vhost, session.broker.access
        if form.version == vhost.version and form.allowed == access.version:
            return
        envelope = form.envelope
        session.door.check_publish(envelope.exchange, (envelope.routing_key,))
        vhost.exchange_for_publish(envelope.exchange)
        form.apart = vhost.needs_content(envelope.exchange)
        form.queues = () if form.apart else session.broker.engine.route(vhost, envelope)
        form.version, form.allowed = vhost.version, access.version

    def _publish(
        self, envelope: Envelope, queues: tuple[Queue, ...], contents: list[bytes], first: int, wishes: Wishes
    ) -> Reply | Work:
        session = self._session
        engine = session.broker.engine
        if len(queues) <= WIDE or session.branch is not None:  # others are charged for each piece
            engine.requests.left -= PUBLISH + len(queues) * (1 + len(contents) // COPIES)
        if not queues or (wishes.immediate and not all(map(_is_served, queues))):
            return self._refuse_unroutable(first, len(contents), wishes)
        if any(NO_LOCAL in queue.arguments for queue in queues):
            queues = for_others(session, queues)
            if not queues:
                session.traffic.dropped += len(contents)
                return self._accept(first, len(contents), wishes, 0)
        if session.branch is not None:
            session.broker.transactions.enlist(session.branch, Publication(envelope, contents, queues))
            return self._accept(first, len(contents), wishes, 0)
        receipt = engine.publish(envelope, contents, queues, divided=True)
        if receipt.placings:
            return self._placed(receipt, first, len(contents), wishes)
        return self._answer(receipt.refused, receipt.lsn, first, len(contents), wishes)

    def _placed(self, receipt: Receipt, first: int, count: int, wishes: Wishes) -> Work:
        """Answer publishes when they are in all of their queues."""
        while not all(placing.done for placing in receipt.placings):
            yield WAIT
        refused = tuple([number for placing in receipt.placings for number in placing.refused])
        after = max([receipt.lsn, *[placing.lsn for placing in receipt.placings]])
        return self._answer(refused, after, first, count, wishes)

    def _answer(self, refused: tuple[int, ...], after: int, first: int, count: int, wishes: Wishes) -> Reply:
        """Answer publishes of which those that `refused` numbers found a queue at its limit."""
        if not refused:
            return self._accept(first, count, wishes, after)
        if not wishes.explicit:
            raise BrokerError(Condition.LIMIT_EXCEEDED, "a queue has reached its limit and refuses messages")
        for place in refused:
            self._reject(first + place, 1, RejectCode.UNSPECIFIED, "a queue has reached its limit")
        at = first
        for place in [*refused, count]:
            if first + place > at:
                self._accept(at, first + place - at, wishes, after)
            at = first + place + 1
        return Reply(after=after)

    def _accept(self, first: int, count: int, wishes: Wishes, after: int) -> Reply:
        """Tell the publisher, if it wants to know, that the broker has taken its messages."""
        if wishes.explicit:
            self._session.traffic.answered(count)
            self._session.send(MessageAccept(wire_ranges([(first, first + count - 1)])), after=after)
        return Reply(after=after)

    def _refuse_unroutable(self, first: int, count: int, wishes: Wishes) -> Reply:
        """Drop messages without a queue, or reject them if the publisher wants to know (`discard-unroutable`)."""
        after = self._session.broker.log.proof_lsn(0)  # another node may have bound a queue
        if wishes.explicit and not wishes.discard_unroutable:
            self._session.traffic.returned += count
            code = RejectCode.IMMEDIATE if wishes.immediate else RejectCode.UNROUTABLE
            self._reject(first, count, code, "no queue takes the message", after)
            return Reply(after=after)
        self._session.traffic.dropped += count
        return self._accept(first, count, wishes, after)

    def _reject(self, first: int, count: int, code: RejectCode, text: str, after: int = 0) -> None:
        if code is RejectCode.UNSPECIFIED:
            self._session.traffic.answered(0, count)
        self._session.send(MessageReject(wire_ranges([(first, first + count - 1)]), code, text), after=after)

    # -- ports.SessionPart

    @property
    def lasting(self) -> bool:
        """Publishes belong to no connection."""
        return True

    def attached(self) -> None:
        """Check permissions and look up queues again, since the client has logged in again."""
        self._forms.clear()

    def sent_again(self, first: int, most: int) -> list[tuple[int, list[Piece]]]:
        """Return nothing: the answers to publishes are remembered by the session."""
        return []

    def caught_up(self) -> None:
        """Do nothing: nothing is delivered here."""

    @property
    def counted_bytes(self) -> int:
        """The memory of the forms. A run is published before the turn ends."""
        return _FORM_BYTES * len(self._forms)

    def completed(self, first: int, last: int) -> None:
        """Do nothing: the client's completions concern what it receives."""

    def note_ages(self, now_ms: int) -> None:
        """Do nothing: no deliveries are held here."""

    def dropping_forbidden(self) -> Iterator[None]:
        """Do nothing: each publish is checked."""
        return iter(())

    def leave(self) -> None:
        """Forget the messages that were read: their commands are not complete."""
        self._form, self._contents = None, []

    def leaving(self) -> Iterator[None]:
        """Forget what is known of the client's messages."""
        self._forms.clear()
        return iter(())

    def returning(self) -> Iterator[None]:
        """Do nothing: publishes are not kept."""
        return iter(())

    def row(self) -> dict[str, object]:
        """Return nothing: publishes are not kept."""
        return {}


def _is_served(queue: Queue) -> bool:
    """Whether a consumer of `queue` can take another message at once. Of many consumers, some are looked at."""
    queue.refresh()
    if queue.ready or queue.returning:
        return False
    return any(
        consumer.credit.left > 0 and consumer.receiver is not None and consumer.receiver.writable
        for consumer in islice(queue.consumers, _LOOKED_AT)
    )
