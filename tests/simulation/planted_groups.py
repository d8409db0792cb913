"""Planted bugs in consumer groups that the simulator must find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from unittest import mock

from escrowmq.core.conditions import BrokerError
from escrowmq.core.groups.cursor import Cursor, Settling
from escrowmq.core.groups.group import Group
from escrowmq.core.groups.orders import Lanes
from escrowmq.core.groups.recovery import FoundGroups
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.groups import SettledCause, encode_group_settled
from escrowmq.core.records.kinds import Kind
from tests.simulation import planted_faults

Range = tuple[int, int]
_settled_now = Cursor.settled_now
_bury = Group.bury
_read = Cursor._read
_apply = Settling.apply


def floor_is_the_highest_acknowledged(self: Cursor, ranges: Iterable[Range], positions: Iterable[int]) -> None:
    found = list(ranges)
    self.settled.raise_to(max(first + length for first, length in found))
    _settled_now(self, found, positions)


def any_handle_is_valid(self: Cursor, position: int, generation: int) -> bool:
    """Accept the handle of a lease that has run out or was replaced."""
    return position in self.out


def handle_without_its_end(self: Cursor, position: int, generation: int) -> bool:
    """Accept a handle whose lease has run out, as long as nobody noticed."""
    out = self.out.get(position)
    return out is not None and out.generation == generation != 0


def lane_free_while_leased(self: Lanes, lane: Any) -> None:
    self._free[lane] = None


def nothing_revoked(self: Lanes, position: int) -> list[int]:
    return []


def leases_forgotten_by_recovery(self: FoundGroups, lsn: int, payload: bytes) -> None:
    """Restore no leases, so that what members have is offered again after a crash."""


def settled_without_a_record(self: Cursor, generations: dict[int, int], cause: SettledCause) -> None:
    """Record only what a filter passes over."""
    settling = Settling(self, generations, cause)
    if cause is SettledCause.PASSED:
        for kind, parts in settling.operations():
            self.group.host.log.append(kind, *parts)
    _apply(settling, 0, 0)


def buried_before_its_settlement_is_recorded(self: Group, cursor: Cursor, position: int, outcome: Outcome) -> int:
    """Put the dead letter into its topic, and forget to settle it on disk."""
    with mock.patch.object(Settling, "operations", return_value=[]):
        return _bury(self, cursor, position, outcome)


def passed_over_is_not_settled(self: Cursor, generations: dict[int, int], cause: SettledCause) -> None:
    if cause is not SettledCause.PASSED:
        record = encode_group_settled(
            self.group.number, self.stream.ident, cause, 0, Settling(self, generations, cause)._ranges
        )
        self.group.host.log.append(Kind.GROUP_SETTLED, record)
        _apply(Settling(self, generations, cause), 0, 0)


def nobody_is_called(self: Cursor) -> None:
    """Do not call members when a lease runs out or a key becomes free."""
    if self.waiters:
        self.stream.watch(self.stream.end, self)


def settled_if_it_cannot_be_read(self: Cursor, position: int) -> Entry | None:
    """Give up messages that cannot be read, as if retention had dropped them."""
    try:
        return _read(self, position)
    except BrokerError:
        return None


def another_attempt_if_it_cannot_be_read(self: Cursor, positions: Sequence[int]) -> None:
    """Offer messages that cannot be dead-lettered now again, although they have had all their attempts."""
    for position in positions:
        try:
            self.group.bury(self, position, Outcome.DELIVERY_LIMIT)
        except BrokerError:
            self.out[position] = self.out[position]._replace(generation=0)
            self._revoke(position)
            self._order.give_back(position)


PLANTED: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "floor set to the highest acknowledged": {(Cursor, "settled_now"): floor_is_the_highest_acknowledged},
    "stale handle settles": {(Cursor, "valid"): any_handle_is_valid},
    "handle settles after its lease has run out": {(Cursor, "valid"): handle_without_its_end},
    "key in two hands": {(Lanes, "_offer"): lane_free_while_leased},
    "later messages of a key are not revoked": {(Lanes, "revoke_after"): nothing_revoked},
    "leases forgotten by recovery": {(FoundGroups, "leased"): leases_forgotten_by_recovery},
    "settlement not recorded": {(Cursor, "settle"): settled_without_a_record},
    "dead letter not settled on disk": {(Group, "bury"): buried_before_its_settlement_is_recorded},
    "what a filter passes over is not settled": {(Cursor, "settle"): passed_over_is_not_settled},
    "what cannot be read is given up": {(Cursor, "_read"): settled_if_it_cannot_be_read},
    "one attempt too many": {(Cursor, "_dead_letter"): another_attempt_if_it_cannot_be_read},
    **planted_faults.OF_ANY_DISK,
    **planted_faults.OF_CLOCKS,
    "waiting members are not called": {(Cursor, "wake"): nobody_is_called},
}
"""The patches of each bug, by class and attribute."""
