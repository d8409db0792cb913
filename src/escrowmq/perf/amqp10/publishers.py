"""The publishers of the load tool, within the credit of a link and the window of its session."""

from __future__ import annotations

from typing import Any

from escrowmq.perf.amqp10.encoding import Counters, TransferBlock
from escrowmq.perf.errors import PerfError
from escrowmq.perf.publisher import ConfirmingPublisher, Publisher, TransactingPublisher
from escrowmq.wire.amqp10.codec import frames, hot
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import Disposition, Flow
from escrowmq.wire.amqp10.codec.sections import VALUE
from escrowmq.wire.amqp10.codec.states import Accepted, Declared, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Declare, Discharge

_COORDINATOR = 1
_VALUE = b"\x00\x53" + bytes((VALUE,))


class Permits:
    """How much the broker accepts on one link."""

    def __init__(self, counters: Counters, frames_each: int = 1) -> None:
        self.sent = 0
        self._credit_up_to = 0
        self._window_up_to = 0
        self._counters = counters
        self._frames_each = frames_each

    def open(self, window: int) -> None:
        """Take the window of the broker's begin."""
        self._window_up_to = window

    def on_flow(self, flow: Flow, *, own: bool) -> None:
        """Take a flow; `own` says whether it is for this link."""
        self._window_up_to = int(flow.next_incoming_id or 0) + int(flow.incoming_window)
        if own and flow.link_credit is not None:
            self._credit_up_to = int(flow.delivery_count or 0) + int(flow.link_credit)

    def room(self) -> int:
        """Return the number of messages that may be sent."""
        window = (self._window_up_to - self._counters.transfers) // self._frames_each
        return max(min(self._credit_up_to - self.sent, window), 0)


class LinkPublisher(Publisher):
    """Sends presettled messages; the subclasses wait for answers too."""

    permits: Permits

    def room(self, now: int) -> int:
        return min(super().room(now), self.permits.room())

    def take(self, now: int) -> memoryview | None:
        before = self.published
        data = super().take(now)
        self.permits.sent += self.published - before
        return data

    def on_disposition(self, disposition: Disposition, now: int) -> bytes:
        """Take the broker's states for a range of deliveries. Returns an answer to send, or nothing."""
        raise PerfError(f"the broker sent a disposition for presettled messages: {disposition}")


class SettlingPublisher(LinkPublisher, ConfirmingPublisher):
    """Keeps at most `window` messages without an outcome, and settles those that the broker leaves to it."""

    def on_disposition(self, disposition: Disposition, now: int) -> bytes:
        first = int(disposition.first)
        last = first if disposition.last is None else int(disposition.last)
        if first == self._confirms.floor:
            number = self.on_confirm(last + 1, True, now)
        else:
            number = sum(self.on_confirm(each + 1, False, now) for each in range(first, last + 1))
        self.totals.confirmed += number
        self.totals.confirmed_at = now
        if not isinstance(disposition.state, Accepted):
            self.totals.rejected += number
        if disposition.settled:
            return b""
        return frames.frame(0, hot.encode_disposition(False, first, last, True, encode_composite(disposition.state)))


class DischargingPublisher(LinkPublisher, TransactingPublisher):
    """Repeats: post `size` messages in a transaction, discharge it, and wait for the answer.

    The next transaction is declared together with the discharge of the one before it, if the coordinator link has
    credit for both. If the broker tells its id before it answers the discharge, it is encoded while the answer is
    awaited.
    """

    block: TransferBlock
    control: Permits
    counters: Counters

    def begin(self, transaction: bytes) -> None:
        """Take the id of the first transaction."""
        self._next: bytes = transaction
        self._declaring = self._discharging = -1
        self._undeclared = False
        self._awaited = -1  # the discharge of the transaction that is encoded
        self._encoded: tuple[int, bytes] | None = None  # the next transaction: its messages, and all of its bytes

    def room(self, now: int) -> int:
        if not self._next or not self.control.room():
            return 0
        room = super().room(now)
        return room if room >= min(self.size, self.limit - self.published) else 0

    def take_messages(self, now: int) -> memoryview | None:
        if self.room(now) > 0:
            self.block.transaction = self._next
        return super().take_messages(now)

    def take(self, now: int) -> memoryview | None:
        if self._encoded is not None:
            return self._take_encoded(now)
        if self._undeclared:
            return memoryview(self._declare()) if self.control.room() else None
        before = self.published
        data = self.take_messages(now)
        if data is None:
            return None
        self.permits.sent += self.published - before
        return memoryview(self._discharged(data))

    def _discharged(self, data: memoryview) -> bytes:
        """Return the messages in `data`, their discharge, and the declaration of the next transaction."""
        discharge = _request(self.counters, self.control, Discharge(txn_id=self._next, fail=False))
        self._discharging = self.counters.deliveries - 1
        self._next = b""
        self._undeclared = not self.control.room()
        return b"".join((data, discharge, b"" if self._undeclared else self._declare()))

    def _encode(self) -> None:
        """Encode the next transaction, unless its messages depend on the time at which they are sent."""
        size = min(self.size, self.limit - self.published)
        if self.stamped or self.pace or not 0 < size <= min(self.permits.room(), self.block.count - self._at):
            return
        if self.control.room() < 2:
            return
        self.block.transaction = self._next
        answered = self._discharging
        self._encoded = size, self._discharged(self.block.slice(self._at, size))
        self._discharging, self._awaited = answered, self._discharging

    def _take_encoded(self, now: int) -> memoryview | None:
        """Return the transaction that was encoded, after the answer to the last one; None if publishing has ended."""
        assert self._encoded is not None
        size, data = self._encoded
        if self._open or self.published + size > self.limit:
            return None
        self._encoded = None
        self._discharging = self._awaited
        self._note(size, now)
        self.permits.sent += size
        return memoryview(data)

    def _declare(self) -> bytes:
        self._undeclared = False
        self._declaring = self.counters.deliveries
        return declaration(self.counters, self.control)

    def on_disposition(self, disposition: Disposition, now: int) -> bytes:
        first = int(disposition.first)
        last = first if disposition.last is None else int(disposition.last)
        if isinstance(disposition.state, TransactionalState):
            return b""
        if first <= self._discharging <= last:
            if not isinstance(disposition.state, Accepted):
                raise PerfError(f"the broker did not commit a transaction: {disposition.state}")
            self.on_commit_ok(now)
        if first <= self._declaring <= last and isinstance(disposition.state, Declared):
            self._next = bytes(disposition.state.txn_id)
            if len(self._next) != len(self.block.transaction):
                raise PerfError("the broker's transaction ids differ in length, which the load tool does not support")
            if self._open:
                self._encode()
        return b""


def declaration(counters: Counters, control: Permits) -> bytes:
    """Return the request for a transaction, on the coordinator link, whose handle is 1."""
    return _request(counters, control, Declare())


def _request(counters: Counters, control: Permits, body: Any) -> bytes:
    number = counters.deliveries
    counters.deliveries += 1
    counters.transfers += 1
    control.sent += 1
    head = hot.encode_transfer(_COORDINATOR, number, number.to_bytes(4, "big"), False)
    return frames.frame(0, head, _VALUE + encode_composite(body))
