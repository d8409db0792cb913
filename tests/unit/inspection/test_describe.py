"""Records are described in words."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.messages.marks import Marks
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import encode_number
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.groups import (
    LeasedRange,
    ProgressCause,
    SettledCause,
    SettledRange,
    encode_group_progress,
    encode_group_settled,
    encode_leased,
    encode_locked,
)
from escrowmq.core.records.half import (
    HalfDecided,
    HalfResumed,
    HalfStored,
    OriginFields,
    encode_half_decided,
    encode_half_many,
    encode_half_resumed,
    encode_half_states,
    encode_half_stored,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import encode_marked
from escrowmq.core.records.moves import Move, encode_moves, encode_readdressed
from escrowmq.core.records.publishing import encode_targets
from escrowmq.core.records.queue_state import encode_delivered, encode_returned
from escrowmq.core.records.references import Range
from escrowmq.core.records.reservations import encode_released
from escrowmq.core.records.settling import encode_settle
from escrowmq.core.records.termini import encode_acquired, encode_arrived, encode_forgotten, encode_given_back
from escrowmq.inspection.describe import KEYED, MOST_KEYS, RecordError, describe, kind_of, line, tally
from escrowmq.wire.amqp091 import keyed
from escrowmq.wire.amqp091.packed import pack
from tests.unit.core.xa_site import X, XaSite, Y
from tests.unit.inspection.journals import publish


def test_a_publish_is_described() -> None:
    fields = describe(Kind.PUBLISH, b"".join(publish([b"a", b"bcd"], queue=9, first=40)))
    assert fields == {
        "queues": [[9, 40]],
        "count": 2,
        "bytes": 4,
        "time_ms": 1_700_000_000_000,
        "exchange": "ex",
        "routing_key": "key",
        "durable": True,
    }
    assert (
        line(fields)
        == "queues=[[9, 40]] count=2 bytes=4 time_ms=1700000000000 exchange=ex routing_key=key durable=true"
    )


@pytest.mark.parametrize(("count", "more"), [(MOST_KEYS, []), (MOST_KEYS + 1, ["…"])])
def test_messages_with_different_routing_keys_are_described(count: int, more: list[str]) -> None:
    contents = [keyed.join(b"k.%d" % (n % count), pack(b"\0\0", b"body")) for n in range(2 * count)]
    fields = describe(Kind.PAGE, b"".join(encode_block(0, Envelope("x", "", protocol=keyed.KEYED), contents)))
    assert keyed.KEYED == KEYED
    assert "routing_key" not in fields
    assert fields["routing_keys"] == [f"k.{n}" for n in range(MOST_KEYS)] + more


def test_a_dead_letter_is_described_with_its_history() -> None:
    death = Death("orders", "expired", 3, 0, "", ("orders",), None)
    block = b"".join(encode_block(0, Envelope("", "k", deaths=(death,)), [b""]))
    assert describe(Kind.PAGE, block)["died"] == ["orders: expired (3)"]


def test_settlements_returns_and_deliveries_are_described() -> None:
    settle = encode_settle(3, Outcome.REJECTED, [Range(1, 2), Range(8, 1)])
    assert describe(Kind.SETTLE, settle) == {"queue": 3, "outcome": "rejected", "positions": [[1, 2], [8, 1]]}
    assert describe(Kind.RETURNED, encode_returned(3, [(1, 4)])) == {"queue": 3, "positions": [[1, 4]]}
    assert describe(Kind.DELIVERED, encode_delivered(3, 99)) == {"queue": 3, "below": 99}


def test_marks_are_described() -> None:
    record = encode_marked(3, [(7, Marks(2, {"x": b"\x01"}, frozenset({"b", "a"})))])
    marks = {"position": 7, "failures": 2, "annotations": {"x": "01"}, "excluded": ["a", "b"]}
    assert describe(Kind.MARKED, record) == {"queue": 3, "messages": [marks]}


def test_records_of_link_termini_are_described() -> None:
    arrived = encode_arrived(5, Disposition.ACCEPTED, [b"t1"], [b"\xff" + bytes(7)])
    assert describe(Kind.ARRIVED, arrived) == {
        "terminus": 5,
        "outcome": "accepted",
        "tags": ["7431"],
        "fingerprints": ["00000000000000ff"],
    }
    without = encode_arrived(5, Disposition.ACCEPTED, [b"t1"], None)
    assert describe(Kind.ARRIVED, without) == {"terminus": 5, "outcome": "accepted", "tags": ["7431"]}
    assert describe(Kind.FORGOTTEN, encode_forgotten(5, [b"t1"])) == {"terminus": 5, "tags": ["7431"]}
    acquired = encode_acquired(6, 3, [(7, 40, 2)])
    assert describe(Kind.ACQUIRED, acquired) == {"terminus": 6, "queue": 3, "deliveries": [[7, 40, 2]]}
    leased = encode_leased(2, 3, 9, 1000, [LeasedRange(40, 2, 1)])
    assert describe(Kind.GROUP_LEASED, leased) == {
        "group": 2,
        "stream": 3,
        "generation": 9,
        "due": 1000,
        "positions": [[40, 2, 1]],
    }
    settled = encode_group_settled(2, 3, SettledCause.DEAD, 41, [SettledRange(40, 1, 9)])
    assert describe(Kind.GROUP_SETTLED, settled) == {
        "group": 2,
        "stream": 3,
        "cause": "dead",
        "floor": 41,
        "positions": [[40, 1, 9]],
    }
    reset = encode_group_progress(2, 3, ProgressCause.RESET, 7)
    assert describe(Kind.GROUP_PROGRESS, reset) == {"group": 2, "stream": 3, "cause": "reset", "floor": 7}
    locked = encode_locked(2, 3, 1000, "c1")
    assert describe(Kind.GROUP_LOCKED, locked) == {"group": 2, "stream": 3, "until": 1000, "owner": "c1"}
    given_back = encode_given_back(6, 3, [(40, 1)])
    assert describe(Kind.GIVEN_BACK, given_back) == {"terminus": 6, "queue": 3, "positions": [[40, 1]]}


def test_records_of_half_messages_are_described() -> None:
    origin = OriginFields("t", "g", "u", "c", 3)
    stored = describe(Kind.HALF_STORED, encode_half_stored(HalfStored(9, 1, 7, 8, "m", origin)))
    assert stored == {
        "queue": 9,
        "number": 1,
        "born_ms": 7,
        "due_ms": 8,
        "message_id": "m",
        "topic": "t",
        "group": "g",
        "user": "u",
        "label": "c",
        "target": 3,
    }
    decided = describe(Kind.HALF_DECIDED, encode_half_decided(HalfDecided(9, 1, 3, True, 8)))
    assert decided == {"queue": 9, "number": 1, "state": "committed", "forced": True, "time_ms": 8}
    many = encode_half_many(9, 8, [1, 2], [15, 15])
    assert describe(Kind.HALF_CHECKED, many) == describe(Kind.HALF_PARKED, many)
    assert describe(Kind.HALF_PARKED, many) == {"queue": 9, "time_ms": 8, "numbers": [1, 2], "limits": [15, 15]}
    resumed = encode_half_resumed(HalfResumed(9, 1, 8))
    assert describe(Kind.HALF_RESUMED, resumed) == {"queue": 9, "number": 1, "time_ms": 8}
    states = b"".join(encode_half_states(9, [(1, origin)], []))
    assert describe(Kind.HALF_STATE, states) == {"queue": 9, "origins": 1, "half_messages": 0}


def test_moves_of_a_compaction_are_described() -> None:
    moves = [Move(3, array("Q", [7, 8]), array("I", [0, 1])), Move(4, array("Q", [1]), array("I", [1]))]
    block = b"".join(encode_block(0, Envelope("", "k"), [b"a", b"b"]))
    fields = describe(Kind.RELOCATE, encode_moves(moves) + block)
    assert (fields["moved"], fields["count"], fields["bytes"]) == ([[3, 2], [4, 1]], 2, 2)
    assert describe(Kind.READDRESSED, encode_readdressed(moves, 4096)) == {"moved": [[3, 2], [4, 1]], "block": 4096}


def test_a_commit_has_all_of_its_operations() -> None:
    settle = encode_settle(1, Outcome.ACCEPTED, [Range(0, 3)])
    record = b"".join(encode_commit(7, [(Kind.PUBLISH, publish([b"a"])), (Kind.SETTLE, [settle])])[0])
    fields = describe(Kind.COMMIT, record)
    assert fields["branch"] == 7
    assert [operation["kind"] for operation in fields["operations"]] == ["PUBLISH", "SETTLE"]
    counts = Counter[str]()
    tally(Kind.COMMIT, fields, counts)
    assert counts == {"published": 1, "accepted": 3}


def test_a_message_on_several_queues_counts_for_each() -> None:
    record = encode_targets([(1, 0), (2, 0)]) + b"".join(encode_block(0, Envelope("", ""), [b"a", b"b"]))
    counts = Counter[str]()
    tally(Kind.PUBLISH, describe(Kind.PUBLISH, record), counts)
    assert counts == {"published": 4}


def test_secrets_are_not_shown() -> None:
    fields = describe(Kind.USER_SET, encode_change(name="ann", password_hash="$argon2id$x", scram_hashes=["s"]))
    assert fields == {"name": "ann", "password_hash": "(not shown)", "scram_hashes": "(not shown)"}


def test_values_that_would_not_be_read_as_one_are_quoted() -> None:
    assert line({"a": "", "b": "x y", "c": "n\n", "d": None, "e": {"f": "g"}}) == "a='' b='x y' c='n\\n' d=none e={f=g}"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RecordError, match="unknown record kind 200"):
        kind_of(200)


@pytest.mark.parametrize("kind", Kind)
@given(data=st.binary(max_size=80))
def test_any_bytes_are_described_or_refused(kind: Kind, data: bytes) -> None:
    try:
        fields = describe(kind, data)
    except RecordError:
        return
    assert set(line(fields)).isdisjoint("\n\r")


@given(cut=st.integers(1, 60))
def test_a_shortened_publish_is_refused(cut: int) -> None:
    record = b"".join(publish([b"body" * 10, b"x" * 30]))
    with pytest.raises(RecordError):
        describe(Kind.PUBLISH, record[:-cut])


def test_branches_are_described() -> None:
    """Covers every record of a prepared and decided branch, as a broker writes it."""
    site = XaSite()
    branch = site.prepared(X, publish=(b"a", b"bc"))
    site.coordinator.force(X, commit=True)
    site.coordinator.forget(X)
    lost = site.prepared(Y, settle=0)
    site.coordinator.decide(b"global", 1, [], application="app", epoch=4)
    site.sync()
    kinds = (Kind.PREPARE, Kind.HEURISTIC, Kind.FORGET, Kind.DECIDE)
    found = [(Kind(k), describe(Kind(k), data)) for _, k, data in site.restart().replayed if k in kinds]
    assert [kind for kind, _ in found] == [Kind.PREPARE, Kind.HEURISTIC, Kind.FORGET, Kind.PREPARE, Kind.DECIDE]
    (prepare, heuristic, forget, _, decide) = [fields for _, fields in found]
    to = site.vhost.queue("to").ident
    assert (prepare["branch"], prepare["state"], prepare["xid"]) == (branch.number, "prepared", str(X))
    assert (prepare["published"], prepare["settled"]) == ([[[to], 2]], [[site.q.ident, "accepted", [[1, 1]]]])
    assert [operation["kind"] for operation in heuristic["operations"]] == ["PLACED", "SETTLE"]
    assert forget == {"branch": branch.number}
    assert decide == {"application": "app", "epoch": 4, "rolled_back": [lost.number], "committed": []}
    counts: Counter[str] = Counter()
    for kind, fields in found:
        tally(kind, fields, counts)
    assert counts == {"published": 2, "accepted": 1}
    assert describe(Kind.ROLLBACK, encode_number(3)) == {"branch": 3}


def test_reservations_are_described() -> None:
    released = describe(Kind.RELEASED, encode_released(3, "group", 5, 7))
    assert released == {"queue": 3, "group": "group", "settled": 5, "first": 7}
