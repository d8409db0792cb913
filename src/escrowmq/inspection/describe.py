"""Describes a record of the journal: its fields for JSON, and the same on one line for people."""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate, islice
from typing import Any, Final

from escrowmq.core.branches.branch import State
from escrowmq.core.branches.xid import Xid
from escrowmq.core.half.state import HalfState
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import BLOCK
from escrowmq.core.records.branches import decode_decide, decode_heuristic, decode_number, decode_placed, decode_prepare
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.deliveries import REDELIVERED, decode_deliveries
from escrowmq.core.records.groups import (
    decode_group_progress,
    decode_group_settled,
    decode_leased,
    decode_locked,
)
from escrowmq.core.records.half import (
    decode_half_decided,
    decode_half_many,
    decode_half_resumed,
    decode_half_states,
    decode_half_stored,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import decode_marked
from escrowmq.core.records.moves import decode_moves, decode_readdressed
from escrowmq.core.records.publishing import decode_publish
from escrowmq.core.records.queue_state import decode_delivered, decode_queue_state, decode_returned
from escrowmq.core.records.references import Range
from escrowmq.core.records.reservations import decode_held, decode_released
from escrowmq.core.records.settling import decode_settle
from escrowmq.core.records.termini import decode_acquired, decode_arrived, decode_forgotten, decode_given_back
from escrowmq.journal import digests, removals

Fields = dict[str, Any]

KEYED: Final = 93
"""The protocol number of envelopes whose contents have routing keys of their own (docs/internals/records.md)."""
MOST_KEYS: Final = 5
"""So many routing keys of a block are shown."""

SECRET = ("password", "hash", "secret")
"""Words that mark a field as secret if its name contains them."""


class RecordError(Exception):
    """A record that is invalid for its kind; the text says why."""


def kind_of(number: int) -> Kind:
    """Return the kind of a record. Raises RecordError for a number that this version does not know."""
    try:
        return Kind(number)
    except ValueError:
        raise RecordError(f"unknown record kind {number}") from None


def describe(kind: Kind, payload: bytes | memoryview) -> Fields:
    """Return the fields of a record, ready for JSON. Raises RecordError."""
    try:
        return _DECODERS.get(kind, _change)(payload)
    except RecordError:
        raise
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise RecordError(f"not a valid {kind.name} record: {error}") from error


def line(fields: Fields) -> str:
    """Format the fields as `name=value` on one line."""
    return " ".join(f"{name}={_inline(value)}" for name, value in fields.items())


def tally(kind: Kind, fields: Fields, counts: Counter[str]) -> None:
    """Add the record's effect on messages to `counts`: published (once per queue), and settled by outcome."""
    match kind:
        case Kind.PUBLISH | Kind.PLACED:
            counts["published"] += fields["count"] * len(fields["queues"])
        case Kind.SETTLE:
            counts[fields["outcome"]] += sum(count for _, count in fields["positions"])
        case Kind.COMMIT | Kind.HEURISTIC:
            for operation in fields["operations"]:
                tally(Kind[operation["kind"]], operation, counts)
        case Kind.DECIDE:
            for committed in fields["committed"]:
                tally(Kind.COMMIT, committed, counts)
        case _:
            pass


def _publish(data: bytes | memoryview) -> Fields:
    publish = decode_publish(data)
    return {"queues": [list(target) for target in publish.targets], **_block(data, publish.block)}


def _settle(data: bytes | memoryview) -> Fields:
    settle = decode_settle(data)
    return {"queue": settle.queue, "outcome": settle.outcome.name.lower(), "positions": _pairs(settle.ranges)}


def _commit(data: bytes | memoryview) -> Fields:
    branch, operations = decode_commit(data)
    return {
        "branch": branch,
        "operations": _operations(operations),
    }


def _operations(operations: Iterable[tuple[Kind, int, bytes | memoryview]]) -> list[Fields]:
    return [{"kind": kind.name, **describe(kind, part)} for kind, _, part in operations]


def _prepare(data: bytes | memoryview) -> Fields:
    branch = decode_prepare(data)
    return {
        "branch": branch.number,
        "state": State(branch.state).name.lower(),
        "xid": str(Xid.decode(branch.xid)),
        "owner": branch.owner,
        "started_ms": branch.started,
        "time_ms": branch.time,
        "published": [[list(run.queues), run.length] for run in branch.runs],
        "settled": [[each.queue, each.outcome.name.lower(), _pairs(each.ranges)] for each in branch.settlements],
        "holds": [[hold.queue, hold.group, hold.settled] for hold in branch.reservations],
        **({} if branch.belongs is None else {"user": branch.belongs.user}),
    }


def _placed(data: bytes | memoryview) -> Fields:
    placed = decode_placed(data)
    return {"queues": [list(target) for target in placed.targets], "block": placed.lsn, "count": placed.length}


def _marked(data: bytes | memoryview) -> Fields:
    queue, marks = decode_marked(data)
    return {
        "queue": queue,
        "messages": [
            {
                "position": position,
                "failures": each.failures,
                "annotations": {name: value.hex() for name, value in each.annotations.items()},
                "excluded": sorted(each.excluded),
            }
            for position, each in marks.items()
        ],
    }


def _number(data: bytes | memoryview) -> Fields:
    return {"branch": decode_number(data)}


def _heuristic(data: bytes | memoryview) -> Fields:
    commit, branch, operations = decode_heuristic(data)
    return {"branch": branch, "commit": commit, "operations": _operations(operations)}


def _decide(data: bytes | memoryview) -> Fields:
    decided = decode_decide(data)
    committed = [{"branch": number, "operations": _operations(done)} for number, done in decided.committed]
    return {
        "application": decided.application,
        "epoch": decided.epoch,
        "rolled_back": decided.rolled_back,
        "committed": committed,
    }


def _held(data: bytes | memoryview) -> Fields:
    held = decode_held(data)
    ranges = [[each.first, each.length] for each in held.ranges]
    return {
        "queue": held.queue,
        "group": held.group,
        "first": held.first,
        "positions": ranges,
        **({"user": held.user} if held.user else {}),
    }


def _released(data: bytes | memoryview) -> Fields:
    return decode_released(data)._asdict()


def _arrived(data: bytes | memoryview) -> Fields:
    arrived = decode_arrived(data)
    found: Fields = {
        "terminus": arrived.terminus,
        "outcome": arrived.outcome.name.lower(),
        "tags": [tag.hex() for tag in arrived.tags],
    }
    if arrived.fingerprints is not None:
        found["fingerprints"] = [fingerprint[::-1].hex() for fingerprint in arrived.fingerprints]
    return found


def _forgotten(data: bytes | memoryview) -> Fields:
    forgotten = decode_forgotten(data)
    return {"terminus": forgotten.terminus, "tags": [tag.hex() for tag in forgotten.tags]}


def _acquired(data: bytes | memoryview) -> Fields:
    acquired = decode_acquired(data)
    deliveries = [[each.number, each.first, each.length] for each in acquired.ranges]
    return {"terminus": acquired.terminus, "queue": acquired.queue, "deliveries": deliveries}


def _given_back(data: bytes | memoryview) -> Fields:
    back = decode_given_back(data)
    return {"terminus": back.terminus, "queue": back.queue, "positions": _pairs(back.ranges)}


def _half_stored(data: bytes | memoryview) -> Fields:
    stored = decode_half_stored(data)
    return {
        "queue": stored.queue,
        "number": stored.number,
        "born_ms": stored.born,
        "due_ms": stored.due,
        "message_id": stored.ident,
        **stored.origin._asdict(),
    }


def _half_decided(data: bytes | memoryview) -> Fields:
    decided = decode_half_decided(data)
    return {
        "queue": decided.queue,
        "number": decided.number,
        "state": HalfState(decided.state).name.lower(),
        "forced": decided.forced,
        "time_ms": decided.time,
    }


def _half_many(data: bytes | memoryview) -> Fields:
    many = decode_half_many(data)
    return {"queue": many.queue, "time_ms": many.time, "numbers": list(many.numbers), "limits": list(many.limits)}


def _half_resumed(data: bytes | memoryview) -> Fields:
    resumed = decode_half_resumed(data)
    return {"queue": resumed.queue, "number": resumed.number, "time_ms": resumed.time}


def _half_states(data: bytes | memoryview) -> Fields:
    states = decode_half_states(data)
    return {"queue": states.queue, "origins": len(states.origins), "half_messages": len(states.rows)}


def _group_leased(data: bytes | memoryview) -> Fields:
    leased = decode_leased(data)
    return {
        "group": leased.group,
        "stream": leased.stream,
        "generation": leased.generation,
        "due": leased.due,
        "positions": [list(each) for each in leased.ranges],
    }


def _group_settled(data: bytes | memoryview) -> Fields:
    settled = decode_group_settled(data)
    return {
        "group": settled.group,
        "stream": settled.stream,
        "cause": settled.cause.name.lower(),
        "floor": settled.floor,
        "positions": [list(each) for each in settled.ranges],
    }


def _group_progress(data: bytes | memoryview) -> Fields:
    progress = decode_group_progress(data)
    return {
        "group": progress.group,
        "stream": progress.stream,
        "cause": progress.cause.name.lower(),
        "floor": progress.floor,
    }


def _group_locked(data: bytes | memoryview) -> Fields:
    return decode_locked(data)._asdict()


def _digest(data: bytes | memoryview) -> Fields:
    found = digests.decode(data)
    fields = {"frame": found.lsn, "time_us": found.time_us, "body_crc": f"{found.body_crc:08x}"}
    return {**fields, "digest": found.strong.hex(), "marks": len(found.marks)}


def _removed(data: bytes | memoryview) -> Fields:
    holes = removals.decode(data)
    return {"removed": [[hole.first_lsn, hole.end_lsn, hole.link.hex()] for hole in holes]}


def _relocate(data: bytes | memoryview) -> Fields:
    moves, block = decode_moves(data)
    return {"moved": [[move.queue, len(move.positions)] for move in moves], **_block(data, block)}


def _readdressed(data: bytes | memoryview) -> Fields:
    moves, lsn = decode_readdressed(data)
    return {"moved": [[move.queue, len(move.positions)] for move in moves], "block": lsn}


def _page(data: bytes | memoryview) -> Fields:
    return _block(data, 0)


def _returned(data: bytes | memoryview) -> Fields:
    queue, entries = decode_returned(data)
    return {"queue": queue, "positions": [list(entry) for entry in entries]}


def _delivered(data: bytes | memoryview) -> Fields:
    target = decode_delivered(data)
    return {"queue": target.queue, "below": target.first}


def _deliveries(data: bytes | memoryview) -> Fields:
    found = decode_deliveries(data)
    parts = [
        {"consumer": part.consumer, "redelivered": bool(part.flags & REDELIVERED), "positions": _pairs(part.ranges)}
        for part in found.parts
    ]
    return {"queue": found.queue, "time_ms": found.time, "parts": parts}


def _queue_state(data: bytes | memoryview) -> Fields:
    state = decode_queue_state(data)
    return {
        "queue": state.queue,
        "next_position": state.next_position,
        "delivered_below": state.delivered_below,
        "references": len(state.firsts),
        "messages": sum(state.counts),
    }


def _change(data: bytes | memoryview) -> Fields:
    fields: object = decode_change(data)
    if not isinstance(fields, dict):
        raise RecordError("the record is not a JSON object")
    return {name: "(not shown)" if any(word in name for word in SECRET) else value for name, value in fields.items()}


def _block(data: bytes | memoryview, at: int) -> Fields:
    length, time, count, head = BLOCK.unpack_from(data, at)
    if at + 4 + length != len(data):
        raise RecordError(f"the block is cut off: {len(data) - at - 4} of {length} bytes")
    at += BLOCK.size
    envelope = Envelope.decode(bytes(data[at : at + head]))
    lengths = array("I", bytes(data[at + head : at + head + 4 * count]))
    if 16 + head + 4 * count + sum(lengths) != length:
        raise RecordError("the lengths of the block's bodies do not add up")
    fields: Fields = {
        "count": count,
        "bytes": sum(lengths),
        "time_ms": time,
        "exchange": envelope.exchange,
        "routing_key": envelope.routing_key,
        "durable": envelope.durable,
    }
    if envelope.protocol == KEYED:
        del fields["routing_key"]
        fields["routing_keys"] = _routing_keys(bytes(data[at + head + 4 * count :]), lengths)
    if envelope.deaths:
        fields["died"] = [f"{death.queue}: {death.reason} ({death.times})" for death in envelope.deaths]
    return fields


def _routing_keys(contents: bytes, lengths: array[int]) -> list[str]:
    """The first distinct routing keys of keyed contents, and an ellipsis if there are more."""
    starts = accumulate(lengths[:-1], initial=0)
    keys = dict.fromkeys(contents[at + 1 : at + 1 + contents[at]].decode("utf-8", "replace") for at in starts)
    return [*islice(keys, MOST_KEYS), *(["…"] if len(keys) > MOST_KEYS else [])]


def _pairs(ranges: list[Range]) -> list[list[int]]:
    return [list(part) for part in ranges]


def _inline(value: object) -> str:
    match value:
        case dict():
            return "{" + line(value) + "}"
        case list():
            return "[" + ", ".join(_inline(item) for item in value) + "]"
        case str() if value and value.isprintable() and " " not in value:
            return value
        case bool() | None | int():
            return str(value).lower()
        case _:
            return repr(value)


_DECODERS: dict[Kind, Callable[[bytes | memoryview], Fields]] = {
    Kind.PUBLISH: _publish,
    Kind.SETTLE: _settle,
    Kind.COMMIT: _commit,
    Kind.RELOCATE: _relocate,
    Kind.READDRESSED: _readdressed,
    Kind.RETURNED: _returned,
    Kind.MARKED: _marked,
    Kind.QUEUE_STATE: _queue_state,
    Kind.PAGE: _page,
    Kind.DELIVERED: _delivered,
    Kind.DELIVERIES: _deliveries,
    Kind.PREPARE: _prepare,
    Kind.PLACED: _placed,
    Kind.ROLLBACK: _number,
    Kind.FORGET: _number,
    Kind.HEURISTIC: _heuristic,
    Kind.DECIDE: _decide,
    Kind.HELD: _held,
    Kind.RELEASED: _released,
    Kind.ARRIVED: _arrived,
    Kind.FORGOTTEN: _forgotten,
    Kind.ACQUIRED: _acquired,
    Kind.GIVEN_BACK: _given_back,
    Kind.HALF_STORED: _half_stored,
    Kind.HALF_DECIDED: _half_decided,
    Kind.HALF_CHECKED: _half_many,
    Kind.HALF_PARKED: _half_many,
    Kind.HALF_RESUMED: _half_resumed,
    Kind.HALF_STATE: _half_states,
    Kind.GROUP_LEASED: _group_leased,
    Kind.GROUP_SETTLED: _group_settled,
    Kind.GROUP_PROGRESS: _group_progress,
    Kind.GROUP_LOCKED: _group_locked,
    Kind.DIGEST: _digest,
    Kind.REMOVED: _removed,
}
