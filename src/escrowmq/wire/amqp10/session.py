"""A session: its windows, its links by handle, and the answers that it owes (part 2, section 2.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.budget import LINK
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp10 import attaching, dispositions
from escrowmq.wire.amqp10.answers import MASK, Answers
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.hot import encode_disposition
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    encode_performative,
)
from escrowmq.wire.amqp10.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    LIMIT_EXCEEDED,
    NOT_ALLOWED,
    UNATTACHED_HANDLE,
    UNAUTHORIZED,
    WINDOW_VIOLATION,
    AmqpFault,
    connection_fault,
    link_fault,
    refusal,
    session_fault,
)
from escrowmq.wire.amqp10.link import Link
from escrowmq.wire.amqp10.outgoing import ConsumerLink
from escrowmq.wire.amqp10.posts import Posts
from escrowmq.wire.amqp10.sent import SentDeliveries

if TYPE_CHECKING:
    from escrowmq.core.termini.loan import Loan
    from escrowmq.core.termini.terminus import TerminusKey
    from escrowmq.wire.amqp10.codec.performatives import Performative
    from escrowmq.wire.amqp10.connection import Connection
    from escrowmq.wire.amqp10.incoming import ProducerLink

OUTGOING_WINDOW: Final = 0x7FFFFFFF
"""The outgoing window that the broker announces. It limits itself by credit and by the client's incoming window."""


class Starving(Protocol):
    """A link that waits for the client's incoming window."""

    def wake(self) -> None:
        """Continue, because the window has room."""
        ...


class Session:
    """One session of a connection. Broker and client use the same channel number, and the same handle for a link."""

    def __init__(self, connection: Connection, channel: int, begin: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.lane = channel + 1
        self.ending = False  # nothing is sent any more: one side has sent End, or the connection ends
        self._ended = False  # the client has sent End
        self.links: dict[int, Link] = {}
        self.loans: dict[TerminusKey, Loan] = {}  # of attached links, and of those that were detached and not closed
        self.sent = SentDeliveries()
        self.answers = Answers(channel)
        self.posts = Posts()
        self.settled = False  # whether deliveries were settled in this turn, so that the answers wait for the log
        self.next_incoming_id = begin.next_outgoing_id
        self.incoming_window = connection.limits.session_window
        self.next_outgoing_id = 0
        self.next_delivery_id = 0  # counts without end; the wire has the last 32 bits
        self.remote_incoming_window = begin.incoming_window
        self.handle_max = min(begin.handle_max, connection.limits.links - 1)
        self._crediting: dict[ProducerLink, None] = {}  # links that may have to grant credit
        self._starved: dict[Starving, None] = {}  # links that wait for the client's incoming window
        connection.broker.engine.channels[connection.user] += 1
        connection.broker.engine.counters.channels_opened += 1

    @classmethod
    def begin(cls, connection: Connection, channel: int, begin: Begin) -> None:
        """Begin a session, as the client asks. Raises AmqpFault."""
        broker, user, limits = connection.broker, connection.user, connection.limits
        if channel >= limits.channels:
            raise connection_fault(FRAMING_ERROR, f"channel {channel} is above channel-max {limits.channels - 1}")
        try:
            broker.access.check_channels(user, broker.engine.channels[user])
        except BrokerError as error:
            raise connection_fault(NOT_ALLOWED, error.text) from None
        if begin.remote_channel is not None:
            raise connection_fault(NOT_ALLOWED, "the broker begins no sessions, so begin has no remote-channel")
        session = connection.sessions[channel] = cls(connection, channel, begin)
        session.send(
            Begin(
                remote_channel=channel,
                next_outgoing_id=0,
                incoming_window=session.incoming_window,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=limits.links - 1,
            )
        )

    # -- output

    def send(self, performative: Performative, after: int = 0) -> None:
        """Send a performative, behind the answers that are due, when the log is synced up to `after`."""
        if self.ending:
            return
        self.send_answers()
        self.connection.put(self.lane, frame(self.channel, encode_performative(performative)), after)

    def answer(self, role: bool, first: int, last: int, *, settled: bool, state: bytes, after: int = 0) -> None:
        """Send a disposition at the end of the turn, when the log is synced up to `after`."""
        self.answers.add(role, first, last, settled=settled, state=state, after=after)
        self.connection.answer_later(self)

    def answer_first(self, number: int, state: bytes) -> None:
        """Settle one delivery from the client, ahead of answers that are due and may have to wait for the log."""
        body = encode_disposition(RECEIVER, number & MASK, number & MASK, True, state)
        self.connection.put(self.lane, frame(self.channel, body))

    def answer_now(self) -> None:
        """Send the dispositions and the credit of this turn."""
        if self.ending:
            return
        self.send_answers()
        crediting, self._crediting = self._crediting, {}
        for link in crediting:
            link.grant()
        if self.incoming_window * 2 < self.connection.limits.session_window and not self.connection.gate.reason:
            self.incoming_window = self.connection.limits.session_window
            self.send_flow()

    def send_answers(self) -> None:
        """Send the dispositions that are due."""
        if not self.answers:
            return
        after = self.answers.after
        if self.settled:
            self.settled = False
            broker = self.connection.broker
            after = broker.termini.record()  # at the end of a turn, the engine has done this already
        self.connection.put(self.lane, self.answers.take(), self.connection.broker.log.proof_lsn(after))

    def send_flow(self, **link: int | bool | None) -> None:
        """Send the state of the windows; `link` has the fields of a link, if any."""
        self.send(
            Flow(
                next_incoming_id=self.next_incoming_id,
                incoming_window=self.incoming_window,
                next_outgoing_id=self.next_outgoing_id & MASK,
                outgoing_window=OUTGOING_WINDOW,
                **link,  # type: ignore[arg-type]
            )
        )

    # -- windows

    def received(self, frames: int) -> None:
        """Count transfer frames from the client. Raises AmqpFault (window-violation)."""
        self.next_incoming_id = (self.next_incoming_id + frames) & MASK
        self.incoming_window -= frames
        if self.incoming_window * 2 < self.connection.limits.session_window:
            if self.incoming_window < 0:
                raise session_fault(WINDOW_VIOLATION, "more transfers than the incoming window allows")
            self.connection.answer_later(self)

    def transmitted(self, frames: int) -> None:
        """Count transfer frames to the client."""
        self.next_outgoing_id += frames
        self.remote_incoming_window -= frames

    def credit_later(self, link: ProducerLink) -> None:
        """Let `link` grant credit at the end of the turn, if it is due."""
        self._crediting[link] = None
        self.connection.answer_later(self)

    def starve(self, link: Starving) -> None:
        """Let `link` continue when the client's incoming window opens."""
        self._starved[link] = None

    def forget_loan(self, loan: Loan) -> None:
        """Forget a loan that is over."""
        if self.loans.get(loan.terminus.key) is loan:
            del self.loans[loan.terminus.key]

    # -- performatives of the client

    def attach(self, attach: Attach) -> Iterator[None] | None:
        """Attach a link. Return the rest of the work if there is much. Raises AmqpFault."""
        if attach.handle > self.connection.limits.links - 1:
            raise connection_fault(FRAMING_ERROR, f"handle {attach.handle} is above handle-max")
        if attach.handle in self.links:
            raise connection_fault(HANDLE_IN_USE, f"handle {attach.handle} is in use")
        if attach.handle > self.handle_max:
            raise session_fault(LIMIT_EXCEEDED, f"the client's handle-max is {self.handle_max}")
        link = self.links[attach.handle] = Link(self, attach)
        return attaching.attach(link, attach)

    def flow(self, flow: Flow) -> None:
        """Apply the client's windows and the credit of a link. Raises AmqpFault."""
        base = flow.next_incoming_id if flow.next_incoming_id is not None else 0
        behind = (self.next_outgoing_id - base) & MASK
        if behind > MASK >> 1:
            raise session_fault(WINDOW_VIOLATION, f"next-incoming-id {base} was never sent")
        self.remote_incoming_window = flow.incoming_window - behind
        if flow.handle is not None:
            link = self._link(flow.handle)
            if link.end is not None and not link.detaching:
                link.end.flow(flow)
        elif flow.echo:
            self.send_flow()
        if self._starved and self.remote_incoming_window > 0:
            starved, self._starved = self._starved, {}
            for starving in starved:
                starving.wake()

    def disposition(self, disposition: Disposition) -> Iterator[None] | None:
        """Apply the client's disposition. Raises AmqpFault."""
        return dispositions.apply(self, disposition)

    def detach(self, detach: Detach) -> None:
        """Detach a link, as the client asks. Raises AmqpFault."""
        link = self._link(detach.handle)
        del self.links[detach.handle]
        if not link.detaching:
            end = link.end
            after = link.release(closed=detach.closed)
            if detach.closed and isinstance(end, ConsumerLink):
                after = max(after, end.unsubscribe())
            self.send(Detach(handle=detach.handle, closed=detach.closed), after)

    def end(self, _end: End) -> None:
        """End the session, as the client asks. The answer follows when everything is returned."""
        if self.ending:
            if not self._ended:
                del self.connection.sessions[self.channel]
            return
        self.send_answers()
        self._ended = True
        self.leave()
        self.connection.leave(self._closing())

    def _closing(self) -> Iterator[None]:
        yield from self.releasing()
        connection = self.connection
        if connection.sessions.get(self.channel) is self:
            connection.put(self.lane, frame(self.channel, encode_performative(End())))
            del connection.sessions[self.channel]

    def _link(self, handle: int) -> Link:
        link = self.links.get(handle)
        if link is None:
            raise session_fault(UNATTACHED_HANDLE, f"handle {handle} is not attached")
        return link

    # -- called by the connection

    def blocking(self, reason: str) -> Iterator[None]:
        """Take the credit of producers back because of `reason`, or grant it again if it is empty. Yield whenever the
        turn's budget is used up. A later block makes the rest of this one needless.
        """
        gate, requests = self.connection.gate, self.connection.broker.engine.requests
        for link in list(self.links.values()):
            if gate.reason != reason:
                return
            if link.end is not None:
                link.end.block(on=bool(reason))
            requests.left -= LINK
            if requests.left <= 0:
                yield
        if not reason:
            self.connection.answer_later(self)

    def dropping_forbidden_links(self) -> Iterator[None]:
        """Detach the links that the user may no longer use (SEC-3). Yield after each link that was checked."""
        for link in list(self.links.values()):
            if self.ending:
                return
            if link.end is not None and link.end.forbidden():
                link.fail(link_fault(UNAUTHORIZED, "the permission was revoked"))
            yield

    def fail(self, fault: AmqpFault) -> None:
        """End the session for a fault. Everything up to the client's End is ignored."""
        if self.ending:
            return
        self.connection.failed(fault)
        self.send(End(fault.error()))
        self.leave()
        self.connection.leave(self.releasing())

    def refuse(self, error: BrokerError) -> None:
        """End the session because the core refused an operation."""
        self.fail(refusal(error))

    def leave(self) -> None:
        """Send nothing any more, and give no deliveries to the links, which are about to be released."""
        self.ending = True
        self.remote_incoming_window = 0

    def releasing(self) -> Iterator[None]:
        """Return everything that the links hold, and yield whenever the turn's budget is used up. Call `leave` before,
        because events reach the links until then.
        """
        connection, requests = self.connection, self.connection.broker.engine.requests
        while self.links:
            self.links.popitem()[1].release(closed=False)
            requests.left -= LINK
            if requests.left <= 0:
                yield
        while self.loans:
            _, loan = self.loans.popitem()
            loan.session_ended()
            connection.keep_loan(loan)
            requests.left -= LINK
            if requests.left <= 0:
                yield
        self.sent.clear()
        self.posts.clear()
        self._crediting.clear()
        self._starved.clear()
        channels, user = connection.broker.engine.channels, connection.user
        channels[user] -= 1
        if not channels[user]:
            del channels[user]

    def describe(self) -> list[dict[str, object]]:
        """Return the entries of the session's links in lists."""
        return [{"channel": self.channel, **link.describe()} for link in self.links.values()]

    def row(self) -> dict[str, object]:
        """Return the session's entry in lists of channels. `age_ms` is the longest time for which one of its links has
        had unsettled deliveries.
        """
        consuming = [link.end for link in self.links.values() if isinstance(link.end, ConsumerLink)]
        return {
            "number": self.channel,
            "state": "closing" if self.ending else "running",
            "confirms": False,
            "transactional": False,
            "consumers": len(consuming),
            "prefetch": 0,
            "global_prefetch": 0,
            "unsettled": sum(end.unsettled for end in consuming),
            "age_ms": max([end.age_ms for end in consuming if end.age_ms is not None], default=None),
            "uncommitted": 0,
        }
