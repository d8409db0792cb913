"""The records of branches that are decided in two phases (docs/internals/records.md).

A PREPARE record contains a whole branch, its messages as blocks. The record that places the messages later names these
blocks by address, so that contents are written once. In a snapshot, a PREPARE record has addresses instead of blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import BLOCK
from escrowmq.core.records.changes import decode_change, encode_change
from escrowmq.core.records.commits import decode_commit, encode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_targets
from escrowmq.core.records.references import Range, Target
from escrowmq.core.records.reservations import Released, decode_released
from escrowmq.core.records.settling import decode_settle, encode_settle

PREPARE: Final = struct.Struct("<QBQQIHHHI")
"""Branch number, state, started and prepared (ms), timeout (s), lengths of xid, owner and vhost, number of items."""
ITEM: Final = struct.Struct("<BI")
"""Kind of item, length of the rest."""
PUBLICATION: Final = struct.Struct("<BI")
"""Flags, number of queues."""
ADDRESS: Final = struct.Struct("<QI")
"""LSN of a block, number of messages in it."""
NUMBER: Final = struct.Struct("<Q")
DECIDE: Final = struct.Struct("<qHII")
"""Epoch, length of the application's name, number of branches rolled back, number of branches committed."""
_U32: Final = struct.Struct("<I")
MANDATORY: Final = 1
Payload = bytes | memoryview


class Item(IntEnum):
    """The kinds of items in a PREPARE record."""

    RUN = 1
    """Messages, as a block."""
    ADDRESSED_RUN = 2
    """Messages, by the address of their block."""
    SETTLEMENT = 3
    """A SETTLE payload: messages that leave their queue at commit."""
    REQUEUE = 4
    """A SETTLE payload: messages that return to their place at commit. The outcome has no meaning."""
    HOLD = 5
    """A RELEASED payload: how far a reservation is settled at commit."""
    OWNER = 6
    """The user that began the branch, and the queues and exchanges that its work concerns."""
    ROUTE = 7
    """The queues that receive some of the settled messages as dead letters at commit."""


class RunItem(NamedTuple):
    """`length` messages for `queues` (ids). Their block is at `lsn`."""

    queues: tuple[int, ...]
    mandatory: bool
    lsn: int
    length: int


class SettlementItem(NamedTuple):
    queue: int
    outcome: Outcome
    ranges: list[Range]
    requeue: bool


class Route(NamedTuple):
    """The messages of `queue` in `ranges` are dead letters for the queues `targets` (ids)."""

    queue: int
    ranges: list[Range]
    targets: tuple[int, ...]


class Owner(NamedTuple):
    """The user that began a branch, and the rights that its work needs, as (kind, name, right) (`access.owned`)."""

    user: str
    complete: bool
    concerns: Sequence[tuple[str, str, str]]


class Prepared(NamedTuple):
    """A branch in a PREPARE record. Times are in milliseconds since the epoch, `timeout` is in seconds.

    `belongs` is None in records of versions that did not write it, and `routes` is empty.
    """

    number: int
    state: int
    started: int
    time: int
    timeout: int
    xid: bytes
    owner: str
    runs: list[RunItem]
    settlements: list[SettlementItem]
    reservations: Sequence[Released] = ()
    vhost: str = ""
    belongs: Owner | None = None
    routes: Sequence[Route] = ()


class Decided(NamedTuple):
    """A DECIDE record: the epoch of an application, and the branches that it rolls back and commits.

    A committed branch has its number and its operations as (kind, offset within the record, payload).
    """

    application: str
    epoch: int
    rolled_back: list[int]
    committed: list[tuple[int, list[tuple[Kind, int, Payload]]]]


Operations = Sequence[tuple[Kind, Sequence[bytes]]]


def encode_prepare(
    branch: Prepared, items: Sequence[tuple[Item, Sequence[bytes]]], more: int = 0
) -> tuple[list[bytes], list[int]]:
    """Return the parts of a PREPARE record, and for each item the offset of its payload.

    `items` replace the branch's own items. The caller appends `more` further ones.
    """
    owner = branch.owner.encode("utf-8", "surrogatepass")
    vhost = branch.vhost.encode("utf-8", "surrogatepass")
    head = PREPARE.pack(*branch[:5], len(branch.xid), len(owner), len(vhost), len(items) + more)
    parts = [head, branch.xid, owner, vhost]
    at = sum(map(len, parts))
    offsets = []
    for kind, payload in items:
        size = sum(map(len, payload))
        parts.append(ITEM.pack(kind, size))
        parts.extend(payload)
        offsets.append(at + ITEM.size)
        at += ITEM.size + size
    return parts, offsets


def run_head(queues: Sequence[int], *, mandatory: bool) -> bytes:
    """Return the part of an item that precedes a block or its address."""
    flags = MANDATORY if mandatory else 0
    return PUBLICATION.pack(flags, len(queues)) + b"".join(map(_U32.pack, queues))


def encode_settlement(item: SettlementItem) -> tuple[Item, list[bytes]]:
    payload = encode_settle(item.queue, item.outcome, item.ranges)
    return Item.REQUEUE if item.requeue else Item.SETTLEMENT, [payload]


def encode_route(route: Route) -> tuple[Item, list[bytes]]:
    targets = b"".join(map(_U32.pack, route.targets))
    settled = encode_settle(route.queue, Outcome.REJECTED, route.ranges)
    return Item.ROUTE, [_U32.pack(len(route.targets)), targets, settled]


def _route(data: Payload) -> Route:
    (number,) = _U32.unpack_from(data)
    targets = tuple(_U32.unpack_from(data, 4 + 4 * i)[0] for i in range(number))
    queue, _, ranges = decode_settle(data[4 + 4 * number :])
    return Route(queue, ranges, targets)


def encode_owner(owner: Owner) -> tuple[Item, list[bytes]]:
    concerns = [list(concern) for concern in owner.concerns]
    return Item.OWNER, [encode_change(user=owner.user, complete=owner.complete, concerns=concerns)]


def _owner(data: Payload) -> Owner:
    fields = decode_change(bytes(data))
    concerns = [(kind, name, right) for kind, name, right in fields["concerns"]]
    return Owner(fields["user"], fields["complete"], concerns)


def decode_prepare(data: Payload, lsn: int = 0) -> Prepared:
    """Decode the PREPARE record whose payload is at `lsn`."""
    number, state, started, time, timeout, xid, owner, vhost, items = PREPARE.unpack_from(data)
    at = PREPARE.size
    name = bytes(data[at : at + xid])
    at += xid
    label = bytes(data[at : at + owner]).decode("utf-8", "surrogatepass")
    at += owner
    host = bytes(data[at : at + vhost]).decode("utf-8", "surrogatepass")
    at += vhost
    runs: list[RunItem] = []
    settlements: list[SettlementItem] = []
    reservations: list[Released] = []
    belongs: Owner | None = None
    routes: list[Route] = []
    for _ in range(items):
        kind, size = ITEM.unpack_from(data, at)
        at += ITEM.size
        part = data[at : at + size]
        match Item(kind):
            case Item.RUN | Item.ADDRESSED_RUN:
                runs.append(_run(part, lsn + at, addressed=kind == Item.ADDRESSED_RUN))
            case Item.SETTLEMENT | Item.REQUEUE:
                settlements.append(SettlementItem(*decode_settle(part), kind == Item.REQUEUE))
            case Item.HOLD:
                reservations.append(decode_released(part))
            case Item.OWNER:
                belongs = _owner(part)
            case Item.ROUTE:
                routes.append(_route(part))
        at += size
    work = (runs, settlements, reservations)
    return Prepared(number, state, started, time, timeout, name, label, *work, host, belongs, routes)


def _run(data: Payload, lsn: int, *, addressed: bool) -> RunItem:
    flags, number = PUBLICATION.unpack_from(data)
    at = PUBLICATION.size
    queues = tuple(_U32.unpack_from(data, at + 4 * i)[0] for i in range(number))
    at += 4 * number
    if addressed:
        block, count = ADDRESS.unpack_from(data, at)
    else:
        block, count = lsn + at, BLOCK.unpack_from(data, at)[2]
    return RunItem(queues, bool(flags & MANDATORY), block, count)


def encode_placed(targets: Sequence[tuple[int, int]], lsn: int, count: int) -> bytes:
    """Return an operation that places the `count` messages of the block at `lsn` on their queues."""
    return encode_targets(targets) + ADDRESS.pack(lsn, count)


class Placed(NamedTuple):
    targets: list[Target]
    lsn: int
    length: int


def decode_placed(data: Payload) -> Placed:
    (number,) = _U32.unpack_from(data)
    size = 12
    targets = [Target(*struct.unpack_from("<IQ", data, 4 + i * size)) for i in range(number)]
    return Placed(targets, *ADDRESS.unpack_from(data, 4 + number * size))


def encode_number(number: int) -> bytes:
    """Return the payload of a ROLLBACK or FORGET record."""
    return NUMBER.pack(number)


def decode_number(data: Payload) -> int:
    return int(NUMBER.unpack_from(data)[0])


FORCED: Final = bytes((True,))
"""The part of a HEURISTIC record before the commit of the branch, if the decision is to commit."""


def encode_heuristic(number: int, operations: Operations, *, commit: bool) -> tuple[list[bytes], list[int]]:
    """Return a HEURISTIC record (an operator's decision with its operations), and offsets as of `encode_commit`."""
    parts, offsets = encode_commit(number, operations)
    return [bytes((commit,)), *parts], [offset + 1 for offset in offsets]


def decode_heuristic(data: Payload) -> tuple[bool, int, Iterator[tuple[Kind, int, Payload]]]:
    """Return whether the decision was commit, the branch, and its operations as of `decode_commit`."""
    number, operations = decode_commit(data[1:])
    return bool(data[0]), number, ((kind, offset + 1, part) for kind, offset, part in operations)


def encode_decide_head(application: str, epoch: int, rolled_back: Sequence[int], committed: int) -> bytes:
    """Return the part of a DECIDE record before its `committed` commits."""
    name = application.encode("utf-8", "surrogatepass")
    head = DECIDE.pack(epoch, len(name), len(rolled_back), committed)
    return head + name + struct.pack(f"<{len(rolled_back)}Q", *rolled_back)


def encode_decide(
    application: str, epoch: int, rolled_back: Sequence[int], committed: Sequence[tuple[int, Operations]]
) -> tuple[list[bytes], list[list[int]]]:
    """Return the parts of a DECIDE record, and for each committed branch the offsets of its operations' payloads."""
    head = encode_decide_head(application, epoch, rolled_back, len(committed))
    parts, at = [head], len(head)
    offsets = []
    for number, operations in committed:
        some, places = encode_commit(number, operations)
        offsets.append([at + place for place in places])
        parts += some
        at += sum(map(len, some))
    return parts, offsets


def decode_decide(data: Payload) -> Decided:
    epoch, length, rolled_back, committed = DECIDE.unpack_from(data)
    at = DECIDE.size
    name = bytes(data[at : at + length]).decode("utf-8", "surrogatepass")
    at += length
    losers = [decode_number(data[at + 8 * i :]) for i in range(rolled_back)]
    at += 8 * rolled_back
    winners = []
    for _ in range(committed):
        number, found = decode_commit(data[at:])
        start, end = at, at + _COMMIT_HEAD
        operations = []
        for kind, offset, part in found:
            operations.append((kind, start + offset, part))
            end = start + offset + len(part)
        winners.append((number, operations))
        at = end
    return Decided(name, epoch, losers, winners)


_COMMIT_HEAD: Final = 12
