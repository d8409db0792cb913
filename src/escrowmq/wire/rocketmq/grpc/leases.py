"""The leases of push consumers, which the broker renews as long as the client lives (`auto_renew`).

A renewed lease gets another handle, but the client keeps the receipt that it was given. So the receipts are kept here
with the handles that they stand for now. After a restart of the broker, renewed receipts are stale, and their messages
are delivered again when the last lease runs out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.conditions import BrokerError
from escrowmq.core.groups.options import Handle
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.engine import Engine
    from escrowmq.core.groups.group import Group

LEASE_MS: Final = 60_000
RENEW_MS: Final = 20_000
"""The time between two renewals. A lease lasts three times as long, so a busy broker has time to renew it."""
PIECE: Final = 256
"""Leases that one turn renews."""
LONGEST_MS: Final = 3 * 3600 * 1000
_PARTS: Final = 4
_LONGEST: Final = 100


def receipt(handle: Handle) -> str:
    """Return the receipt that a client is given for a lease."""
    return "-".join(f"{part:x}" for part in handle)


def handle_of(text: str) -> Handle:
    """Return the handle in a receipt. Raises RocketmqRefusal for a text that is none."""
    parts = text.split("-") if len(text) <= _LONGEST and text.isascii() else []
    try:
        numbers = [int(part, 16) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != _PARTS or min(numbers) < 0:
        raise RocketmqRefusal(Code.INVALID_RECEIPT_HANDLE, "the receipt handle is malformed")
    return Handle(*numbers)


class _Renewed(NamedTuple):
    group: Group
    handle: Handle
    until_ms: int


class RenewedLeases:
    """The leases of one client that are renewed."""

    __slots__ = ("_by_receipt", "_deadline", "_engine", "_next_ms", "_waiting")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_receipt: dict[str, _Renewed] = {}
        self._deadline: Deadline | None = None
        self._waiting: list[str] = []  # receipts that this round has yet to renew
        self._next_ms = 0

    def __len__(self) -> int:
        return len(self._by_receipt)

    def add(self, group: Group, handle: Handle) -> None:
        """Renew a lease from now on."""
        self._by_receipt[receipt(handle)] = _Renewed(group, handle, self._engine.now + LONGEST_MS)
        if self._deadline is None:
            self._deadline = self._engine.deadlines.set(self._engine.now + RENEW_MS, self._renew)

    def take(self, text: str) -> Handle:
        """Return the handle for which a receipt stands, and renew it no longer. Raises RocketmqRefusal."""
        found = self._by_receipt.pop(text, None)
        return handle_of(text) if found is None else found.handle

    def end(self) -> None:
        """The client is gone. Its messages are delivered again when their leases run out."""
        self._by_receipt.clear()
        self._waiting.clear()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _renew(self) -> None:
        self._deadline = None
        now, waiting = self._engine.now, self._waiting
        if not waiting:
            waiting += reversed(self._by_receipt)
            self._next_ms = now + RENEW_MS
        for _ in range(min(PIECE, len(waiting))):
            text = waiting.pop()
            found = self._by_receipt.get(text)
            if found is None:
                continue
            group, handle, until_ms = found
            if now >= until_ms:
                del self._by_receipt[text]
                continue
            try:
                changed, _ = group.change(handle, LEASE_MS)
            except BrokerError:  # the lease has ended
                del self._by_receipt[text]
            else:
                self._by_receipt[text] = _Renewed(group, changed, until_ms)
        if self._by_receipt:
            self._deadline = self._engine.deadlines.set(now + 1 if waiting else self._next_ms, self._renew)
