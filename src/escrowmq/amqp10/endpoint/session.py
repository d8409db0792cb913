"""One session: windows, handles, delivery-ids, and the frames of its links. It begins anew on each connection."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from escrowmq.amqp10.endpoint.deliveries import IncomingDelivery, OutgoingDelivery
from escrowmq.amqp10.endpoint.dispositions import Dispositions, encoded
from escrowmq.amqp10.endpoint.events import Event, SessionBegun, SessionGone, StatesChanged
from escrowmq.amqp10.endpoint.incoming import IncomingLink
from escrowmq.amqp10.endpoint.link import LinkEnd, LinkState
from escrowmq.amqp10.endpoint.outgoing import OutgoingLink
from escrowmq.amqp10.errors import AmqpError, ProtocolViolation, SessionFailed, UsageError, described, reason
from escrowmq.amqp10.nodes import LinkOptions
from escrowmq.wire.amqp10.codec import frames, hot
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.progress import offset_of
from escrowmq.wire.amqp10.codec.states import Received, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Coordinator
from escrowmq.wire.amqp10.resume import SenderAction

if TYPE_CHECKING:
    from escrowmq.amqp10.endpoint.connection import Endpoint

_SERIAL: Final = 0xFFFFFFFF
_WINDOW: Final = 0x7FFFFFFF
_FRAME_HEADER: Final = 8


class SessionState(Enum):
    """A session begins when the connection is open, and again after each reconnection, until it is ended."""

    UNMAPPED = "unmapped"
    BEGINNING = "beginning"
    MAPPED = "mapped"
    ENDING = "ending"
    GONE = "gone"


class SessionEndpoint:
    """A session with its links. `channel` is this side's channel number."""

    def __init__(self, endpoint: Endpoint, channel: int) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.state = SessionState.UNMAPPED
        self.error: AmqpError | None = None
        self.window = 0
        """How many transfer frames the peer accepts."""
        self.links: dict[int, LinkEnd] = {}
        self.incoming: dict[int, IncomingDelivery] = {}
        self.outgoing: dict[int, OutgoingDelivery] = {}
        self.answers = Dispositions(RECEIVER)
        self._settlements = Dispositions(SENDER)
        self._peer_handles: dict[int, LinkEnd] = {}
        self._next_frame = 0
        self._next_delivery = 0
        self._next_incoming = 0

    @property
    def max_frame_size(self) -> int:
        """The size (bytes) of the largest frame that the peer accepts."""
        return self.endpoint.peer_max_frame_size

    def check(self) -> bool:
        """Return True. Raises the error with which the session ended, if it did."""
        if self.error is not None:
            raise self.error.again()
        if self.state is SessionState.GONE:
            raise SessionFailed("the session was ended; begin a new one")
        return True

    # -- links

    def outgoing_link(self, name: str, options: LinkOptions, coordinator: Coordinator | None = None) -> OutgoingLink:
        """Add a sending link. It attaches by `attach`, or when the session begins."""
        link = OutgoingLink(self, name, options, self._free_handle(name, SENDER), coordinator)
        self.links[link.handle] = link
        return link

    def incoming_link(self, name: str, options: LinkOptions, window: int) -> IncomingLink:
        """Add a receiving link. It attaches by `attach`, or when the session begins."""
        link = IncomingLink(self, name, options, self._free_handle(name, RECEIVER), window)
        self.links[link.handle] = link
        return link

    def attach(self, link: LinkEnd) -> None:
        """Attach a link as soon as possible."""
        if self.state in (SessionState.BEGINNING, SessionState.MAPPED):
            link.attach()

    def _free_handle(self, name: str, role: bool) -> int:
        self.check()
        if any(link.name == name and link.role is role for link in self.links.values()):
            raise UsageError(f"the session already has a link {name!r} in this direction; choose another name")
        return next(number for number in range(len(self.links) + 1) if number not in self.links)

    def forget(self, link: LinkEnd) -> None:
        """A link is gone; its handle is free."""
        self.links.pop(link.handle, None)
        self._peer_handles = {handle: each for handle, each in self._peer_handles.items() if each is not link}

    def event(self, event: Event) -> None:
        """Report an event."""
        self.endpoint.event(event)

    # -- sending

    def begin(self) -> None:
        """Send begin, and attach all links."""
        self.state = SessionState.BEGINNING
        self._next_frame = self._next_delivery = self.window = 0
        self.send(
            encode_performative(
                Begin(
                    next_outgoing_id=0,
                    incoming_window=_WINDOW,
                    outgoing_window=_WINDOW,
                    handle_max=_SERIAL,
                )
            )
        )
        for link in list(self.links.values()):
            link.attach()

    def end(self) -> None:
        """Send end. The links are gone; durable termini stay at the peer."""
        if self.state in (SessionState.BEGINNING, SessionState.MAPPED):
            self.flush()
            self.send(encode_performative(End()))
            self.state = SessionState.ENDING
        elif self.state is SessionState.UNMAPPED:
            self._gone(None)

    def send(self, performative: bytes) -> None:
        """Send a performative without payload, after the dispositions that wait."""
        if self.answers.waiting or self._settlements.waiting:
            self.flush()
        self.endpoint.write(frames.frame(self.channel, performative))

    def flush(self) -> None:
        """Send the dispositions that wait."""
        for performative in (*self.answers.take(), *self._settlements.take()):
            self.endpoint.write(frames.frame(self.channel, performative))

    def dirty(self) -> None:
        """Dispositions wait, and go out with the next output."""
        self.endpoint.dirty.add(self)

    def flow(self, link: LinkEnd) -> None:
        """Send a link's credit and the session's window."""
        receives = isinstance(link, IncomingLink)
        self.send(
            hot.encode_flow(
                Flow(
                    next_incoming_id=self._next_incoming,
                    incoming_window=_WINDOW,
                    next_outgoing_id=self._next_frame,
                    outgoing_window=_WINDOW,
                    handle=link.handle,
                    delivery_count=link.delivery_count,
                    link_credit=link.credit,
                    available=len(link.queue) if isinstance(link, OutgoingLink) else None,
                    drain=receives and link.draining,  # type: ignore[attr-defined]
                    properties=link.properties if receives else None,  # type: ignore[attr-defined]
                )
            )
        )

    def transfer(self, handle: int, delivery: OutgoingDelivery, sent: int) -> int:
        """Send frames of a delivery from byte `sent` on. Returns the next byte, or -1 if the delivery is complete."""
        if delivery.id < 0:
            delivery.id = self._next_delivery
            self._next_delivery = (self._next_delivery + 1) & _SERIAL
            if not delivery.settled:
                self.outgoing[delivery.id] = delivery
        state = b""
        if delivery.transaction is not None:
            state = encoded(TransactionalState(txn_id=delivery.transaction))
        payload, write, channel = delivery.payload, self.endpoint.write, self.channel
        room = self.max_frame_size - _FRAME_HEADER
        while True:
            if delivery.resume is not None:
                body, begin = _resuming(handle, delivery)
                sent = max(sent, begin)
            else:
                body = hot.encode_transfer(handle, delivery.id, delivery.tag, delivery.settled, False, state)
            self._next_frame = (self._next_frame + 1) & _SERIAL
            self.window -= 1
            if len(body) + len(payload) - sent <= room:
                write(frames.frame(channel, body, payload[sent:] if sent else payload))
                return -1
            if delivery.resume is not None:
                body, _ = _resuming(handle, delivery, more=True)
            else:
                body = hot.encode_transfer(handle, delivery.id, delivery.tag, delivery.settled, True, state)
            end = sent + room - len(body)
            write(frames.frame(channel, body, payload[sent:end]))
            sent = end
            if self.window <= 0:
                return sent

    def settle_outgoing(self, delivery: OutgoingDelivery, state: Any) -> None:
        """Tell the peer that a delivery is settled."""
        if self.outgoing.pop(delivery.id, None) is not None:
            self._settlements.add(delivery.id, True, encoded(state))
            self.dirty()

    def forget_outgoing(self, delivery: OutgoingDelivery) -> None:
        """A delivery was settled by its last transfer."""
        self.outgoing.pop(delivery.id, None)

    # -- receiving

    def on_begin(self, begin: Begin) -> None:
        """Take the peer's begin."""
        if self.state is SessionState.BEGINNING:
            self.state = SessionState.MAPPED
        self._next_incoming = int(begin.next_outgoing_id)
        self.window = int(begin.incoming_window)
        self.event(SessionBegun(self))

    def on_attach(self, attach: Attach) -> None:
        """Take the peer's attach for a link of this side."""
        found = [link for link in self.links.values() if link.name == attach.name and link.role != attach.role]
        if not found:
            raise ProtocolViolation(f"the peer attached the link {attach.name!r}, which the client did not ask for")
        self._peer_handles[int(attach.handle)] = found[0]
        found[0].on_attach(attach)

    def on_detach(self, detach: Detach) -> None:
        """Take the peer's detach."""
        link = self._peer_handles.pop(int(detach.handle), None)
        if link is not None:
            link.on_detach(detach)

    def on_flow(self, flow: Flow) -> None:
        """Take the peer's window, and the credit of a link."""
        seen = 0 if flow.next_incoming_id is None else int(flow.next_incoming_id)
        window = (seen + int(flow.incoming_window) - self._next_frame) & _SERIAL
        self.window = window if window < 1 << 31 else 0
        if flow.handle is not None:
            self._linked(flow.handle).on_flow(flow)
            return
        for link in list(self.links.values()):
            if isinstance(link, OutgoingLink):
                link.pump()

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one transfer frame."""
        self._next_incoming = (self._next_incoming + 1) & _SERIAL
        link = self._peer_handles.get(transfer.handle) or self._linked(transfer.handle)
        if link.state is LinkState.ATTACHED:
            link.on_transfer(transfer, payload)

    def on_disposition(self, disposition: Disposition) -> None:
        """Take the peer's states for a range of deliveries."""
        state, settled = disposition.state, disposition.settled
        if disposition.role is RECEIVER:
            for number in _ids(disposition, self.outgoing):
                sent = self.outgoing.get(number)
                if sent is not None and sent.link.on_state(sent, state, settled):
                    self.outgoing.pop(number, None)
        else:
            for number in _ids(disposition, self.incoming):
                received = self.incoming.get(number)
                if received is not None:
                    received.link.on_state(received, state, settled)
        self.event(StatesChanged(self))

    def on_end(self, end: End) -> None:
        """Take the peer's end, and answer it."""
        asked = self.state is SessionState.ENDING
        if not asked:
            self.send(encode_performative(End()))
        condition, description = described(end.error)
        text = f"the peer ended the session: {reason(end.error, 'without a reason')}"
        self._gone(None if asked and end.error is None else SessionFailed(text, condition, description))

    def lost(self, why: str, *, final: bool) -> None:
        """The connection is gone; `final` if there will be no other one."""
        if self.state is SessionState.GONE:
            return
        self._clear()
        if final or self.state is SessionState.ENDING:
            self._gone(SessionFailed(why) if final else None)
            return
        self.state = SessionState.UNMAPPED
        for link in list(self.links.values()):
            link.lost(why, final=False)

    def _gone(self, error: AmqpError | None) -> None:
        self.state = SessionState.GONE
        self.error = error
        self._clear()
        for link in list(self.links.values()):
            link.lost(str(error) if error else "the session was ended", final=True)
        self.endpoint.forget(self)
        self.event(SessionGone(self, error))

    def _clear(self) -> None:
        self.incoming.clear()
        self.outgoing.clear()
        self.answers.clear()
        self._settlements.clear()
        self._peer_handles.clear()

    def _linked(self, handle: int) -> LinkEnd:
        link = self._peer_handles.get(int(handle))
        if link is None:
            raise ProtocolViolation(f"the peer used the handle {handle}, which is not attached")
        return link


def _ids(disposition: Disposition, known: dict[int, Any]) -> list[int]:
    """Return the delivery-ids of a range, bounded by those that are known."""
    first = int(disposition.first)
    last = first if disposition.last is None else int(disposition.last)
    count = ((last - first) & _SERIAL) + 1
    if count > len(known):
        return [number for number in known if (number - first) & _SERIAL < count]
    return [(first + number) & _SERIAL for number in range(count)]


def _resuming(handle: int, delivery: OutgoingDelivery, *, more: bool = False) -> tuple[bytes, int]:
    """Return the performative of a transfer that resumes a delivery, and where the payload begins in the message."""
    action, remote = delivery.resume.action, delivery.resume.state
    transfer = Transfer(
        handle=handle,
        delivery_id=delivery.id,
        delivery_tag=delivery.tag,
        message_format=0,
        settled=action in (SenderAction.ADOPT, SenderAction.AGREE),
        more=more,
        resume=True,
        aborted=action is SenderAction.ABORT,
    )
    if action in (SenderAction.CONTINUE, SenderAction.WHOLE):
        begin = 0
        if isinstance(remote, Received):
            begin, transfer.state = _reached(delivery.payload, remote)
        return encode_performative(transfer), begin
    transfer.state = {SenderAction.ABORT: None, SenderAction.INSIST: delivery.state}.get(action, remote)
    return encode_performative(transfer), len(delivery.payload)


def _reached(payload: bytes, point: Received) -> tuple[int, Received]:
    """Return where to go on with a message of which the peer has everything before `point`, as offset and as point."""
    try:
        return offset_of(payload, point), point
    except CodecError:
        return 0, Received(section_number=0, section_offset=0)
