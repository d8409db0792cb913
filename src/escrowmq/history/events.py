"""What the records of a journal say about messages: where they got, what happened to them there, and their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from escrowmq.core.branches.xid import Xid
from escrowmq.core.half.state import HalfState
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import decode_block
from escrowmq.core.records.branches import decode_decide, decode_heuristic, decode_placed, decode_prepare
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.deliveries import REDELIVERED, decode_deliveries
from escrowmq.core.records.groups import decode_group_settled, decode_leased
from escrowmq.core.records.half import decode_half_decided, decode_half_many, decode_half_resumed, decode_half_stored
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import decode_moves
from escrowmq.core.records.publishing import decode_publish
from escrowmq.core.records.queue_state import decode_returned
from escrowmq.core.records.reservations import decode_held
from escrowmq.core.records.settling import decode_settle
from escrowmq.core.records.termini import decode_acquired, decode_given_back
from escrowmq.wire.formats import ids_of_each
from escrowmq.wire.neutral import Id, id_text

Payload = bytes | memoryview


class MessageEvent(NamedTuple):
    """Something that happened to `length` messages of a queue, from position `first` on."""

    queue: int
    first: int
    length: int
    what: str
    detail: str = ""


class IndexedBlock(NamedTuple):
    """Messages that entered the journal at the address `lsn`. `ids` has the message id and the correlation id of each.
    They are on the queues `targets`, each with the position of the first; those of a prepared branch are on none yet.
    """

    lsn: int
    ids: list[tuple[str | None, str | None]]
    targets: list[tuple[int, int]]


class IndexedPlacement(NamedTuple):
    """Messages of a block that entered the journal before: the first of them has the position `first` of the queue."""

    lsn: int
    queue: int
    first: int


class IndexedBranch(NamedTuple):
    """A branch that was prepared, and its xid."""

    number: int
    xid: str


Found = MessageEvent | IndexedBlock | IndexedPlacement | IndexedBranch


def found_in(kind: int, lsn: int, payload: Payload) -> Iterator[Found]:
    """Yield what a record says, whose payload is at `lsn`. Most kinds say nothing about single messages."""
    reader = _READERS.get(kind)
    return iter(()) if reader is None else iter(reader(lsn, payload))


def _publish(lsn: int, data: Payload, detail: str = "", *, dead: bool = True) -> Iterator[Found]:
    """Yield what a PUBLISH record says. Unless it is `dead`, a history of deaths is older than the record."""
    publish = decode_publish(data)
    what, died = "published", decode_block(data, publish.block).envelope.deaths
    if died and dead:
        what, detail = "dead-lettered", f"from {died[0].queue}: {died[0].reason}"
    yield IndexedBlock(
        lsn + publish.block, _ids(data, publish.block), [(each.queue, each.first) for each in publish.targets]
    )
    for target in publish.targets:
        yield MessageEvent(target.queue, target.first, publish.length, what, detail)


def _placed(data: Payload, detail: str) -> Iterator[Found]:
    placed = decode_placed(data)
    for target in placed.targets:
        yield IndexedPlacement(placed.lsn, target.queue, target.first)
        yield MessageEvent(target.queue, target.first, placed.length, "published", detail)


def _settle(data: Payload, detail: str = "") -> Iterator[Found]:
    settle = decode_settle(data)
    for part in settle.ranges:
        yield MessageEvent(settle.queue, part.first, part.length, settle.outcome.name.lower(), detail)


def _operations(lsn: int, operations: Iterable[tuple[Kind, int, Payload]], detail: str) -> Iterator[Found]:
    whole = list(operations)
    dead = any(kind is Kind.SETTLE and decode_settle(part).outcome is not Outcome.ACCEPTED for kind, _, part in whole)
    for kind, offset, part in whole:
        if kind is Kind.PUBLISH:
            yield from _publish(lsn + offset, part, detail, dead=dead)
        elif kind is Kind.PLACED:
            yield from _placed(part, detail)
        elif kind is Kind.SETTLE:
            yield from _settle(part, detail)
        else:
            yield from found_in(kind, lsn + offset, part)


def _commit(lsn: int, data: Payload) -> Iterator[Found]:
    branch, operations = decode_commit(data)
    return _operations(lsn, operations, f"by branch {branch}" if branch else "")  # 0: the broker itself


def _heuristic(lsn: int, data: Payload) -> Iterator[Found]:
    commit, branch, operations = decode_heuristic(data)
    return _operations(lsn, operations, f"by an operator, branch {branch} {'committed' if commit else 'rolled back'}")


def _decide(lsn: int, data: Payload) -> Iterator[Found]:
    decided = decode_decide(data)
    for number, operations in decided.committed:
        yield from _operations(lsn, operations, f"by branch {number} of application {decided.application}")


def _prepare(lsn: int, data: Payload) -> Iterator[Found]:
    branch = decode_prepare(data, lsn)
    yield IndexedBranch(branch.number, str(Xid.decode(branch.xid)))
    for run in branch.runs:
        if lsn <= run.lsn < lsn + len(data):
            yield IndexedBlock(run.lsn, _ids(data, run.lsn - lsn), [])
    for each in branch.settlements:
        for part in each.ranges:
            yield MessageEvent(
                each.queue, part.first, part.length, "locked", f"by branch {branch.number}, until it is decided"
            )


def _relocate(lsn: int, data: Payload) -> Iterator[Found]:
    moves, at = decode_moves(data)
    ids = _ids(data, at)
    for move in moves:
        for position, start in zip(move.positions, move.starts, strict=True):
            yield MessageEvent(move.queue, position, 1, "moved", "by a compaction")
            yield IndexedBlock(lsn + at, [ids[start & 0x7FFFFFFF]], [(move.queue, position)])


def _returned(_: int, data: Payload) -> Iterator[Found]:
    queue, entries = decode_returned(data)
    for position, deliveries in entries:
        yield MessageEvent(queue, position, 1, "returned", f"after delivery {deliveries}")


def _deliveries(_: int, data: Payload) -> Iterator[Found]:
    found = decode_deliveries(data)
    for part in found.parts:
        detail = f"to {part.consumer}" + (", redelivered" if part.flags & REDELIVERED else "")
        for each in part.ranges:
            yield MessageEvent(found.queue, each.first, each.length, "delivered", detail)


def _held(_: int, data: Payload) -> Iterator[Found]:
    held = decode_held(data)
    for part in held.ranges:
        yield MessageEvent(held.queue, part.first, part.length, "reserved", f"by bulk reader {held.group}")


def _acquired(_: int, data: Payload) -> Iterator[Found]:
    acquired = decode_acquired(data)
    for part in acquired.ranges:
        yield MessageEvent(
            acquired.queue, part.first, part.length, "delivered", f"to link terminus {acquired.terminus}"
        )


def _given_back(_: int, data: Payload) -> Iterator[Found]:
    back = decode_given_back(data)
    for part in back.ranges:
        yield MessageEvent(back.queue, part.first, part.length, "returned", f"by link terminus {back.terminus}")


def _leased(_: int, data: Payload) -> Iterator[Found]:
    leased = decode_leased(data)
    for each in leased.ranges:
        yield MessageEvent(leased.stream, each[0], each[1], "delivered", f"to consumer group {leased.group}")


def _group_settled(_: int, data: Payload) -> Iterator[Found]:
    settled = decode_group_settled(data)
    for each in settled.ranges:
        cause = settled.cause.name.lower().replace("_", " ")
        yield MessageEvent(settled.stream, each.first, each.length, cause, f"by consumer group {settled.group}")


def _half_stored(_: int, data: Payload) -> Iterator[Found]:
    stored = decode_half_stored(data)
    yield MessageEvent(stored.queue, stored.number, 1, "stored as half message", f"of topic {stored.origin.topic}")


def _half_decided(_: int, data: Payload) -> Iterator[Found]:
    decided = decode_half_decided(data)
    words = HalfState(decided.state).name.lower().replace("_", " ")
    yield MessageEvent(
        decided.queue, decided.number, 1, words, "by an operator" if decided.forced else "by its producer"
    )


def _half_many(what: str) -> Callable[[int, Payload], Iterator[Found]]:
    def read(_: int, data: Payload) -> Iterator[Found]:
        many = decode_half_many(data)
        for number in many.numbers:
            yield MessageEvent(many.queue, number, 1, what)

    return read


def _half_resumed(_: int, data: Payload) -> Iterator[Found]:
    resumed = decode_half_resumed(data)
    yield MessageEvent(resumed.queue, resumed.number, 1, "resumed", "by an operator")


def _ids(data: Payload, at: int) -> list[tuple[str | None, str | None]]:
    """Return the ids of the messages of the block at offset `at`. One that cannot be read has none."""
    block = decode_block(data, at)
    return [(_text(ident), _text(correlation)) for ident, correlation in ids_of_each(block.envelope, block.contents)]


def _text(value: Id | None) -> str | None:
    return value if value is None or type(value) is str else id_text(value)


_READERS: Final[Mapping[int, Callable[[int, Payload], Iterable[Found]]]] = {
    Kind.PUBLISH: _publish,
    Kind.SETTLE: lambda _, data: _settle(data),
    Kind.COMMIT: _commit,
    Kind.HEURISTIC: _heuristic,
    Kind.DECIDE: _decide,
    Kind.PREPARE: _prepare,
    Kind.RELOCATE: _relocate,
    Kind.RETURNED: _returned,
    Kind.DELIVERIES: _deliveries,
    Kind.HELD: _held,
    Kind.ACQUIRED: _acquired,
    Kind.GIVEN_BACK: _given_back,
    Kind.GROUP_LEASED: _leased,
    Kind.GROUP_SETTLED: _group_settled,
    Kind.HALF_STORED: _half_stored,
    Kind.HALF_DECIDED: _half_decided,
    Kind.HALF_CHECKED: _half_many("checked"),
    Kind.HALF_PARKED: _half_many("parked"),
    Kind.HALF_RESUMED: _half_resumed,
}
