"""A place in a record leads to the messages that are there."""

from __future__ import annotations

from array import array

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import encode_decide, encode_heuristic
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import Move, encode_moves
from escrowmq.core.records.publishing import encode_targets
from escrowmq.core.records.settling import encode_settle
from escrowmq.pipeline.affected import Affected, affected

BLOCK = b"".join(encode_block(7, Envelope("", "q", durable=True), [b"first", b"second", b"third"]))
PUBLISH = encode_targets([(3, 40), (4, 1)]) + BLOCK


def messages(kind: int, payload: bytes, *marked: bytes) -> list[tuple[int, int, int]]:
    places = [(payload.index(part), payload.index(part) + 1) for part in marked]
    return affected(kind, 100, payload, places).messages


def test_a_place_in_a_content_is_one_message_on_each_queue() -> None:
    assert messages(Kind.PUBLISH, PUBLISH, b"second") == [(3, 41, 1), (4, 2, 1)]
    assert messages(Kind.PUBLISH, PUBLISH, b"first", b"third") == [(3, 40, 1), (4, 1, 1), (3, 42, 1), (4, 3, 1)]


def test_a_place_before_the_contents_is_all_messages() -> None:
    assert affected(Kind.PUBLISH, 0, PUBLISH, [(0, 1)]).messages == [(3, 40, 3), (4, 1, 3)]
    assert affected(Kind.PUBLISH, 0, PUBLISH, [(0, len(PUBLISH))]).messages == [(3, 40, 3), (4, 1, 3)]


def test_a_place_over_several_contents_is_several_messages() -> None:
    begin = PUBLISH.index(b"second")
    assert affected(Kind.PUBLISH, 0, PUBLISH, [(begin, len(PUBLISH))]).messages == [(3, 41, 2), (4, 2, 2)]


def test_operations_of_branches_are_looked_into() -> None:
    settle = Kind.SETTLE, [encode_settle(3, Outcome.ACCEPTED, [(40, 1)])]
    operations = [settle, (Kind.PUBLISH, [PUBLISH])]
    commit = b"".join(encode_commit(5, operations)[0])
    assert messages(Kind.COMMIT, commit, b"third") == [(3, 42, 1), (4, 3, 1)]
    assert affected(Kind.COMMIT, 100, commit, [(0, 1)]) == Affected(Kind.COMMIT, 100, 5, [])
    forced = b"".join(encode_heuristic(6, operations, commit=True)[0])
    assert messages(Kind.HEURISTIC, forced, b"first") == [(3, 40, 1), (4, 1, 1)]
    assert affected(Kind.HEURISTIC, 100, forced, [(0, 1)]).branch == 6
    decide = b"".join(encode_decide("app", 1, [], [(7, operations)])[0])
    assert messages(Kind.DECIDE, decide, b"second") == [(3, 41, 1), (4, 2, 1)]


def test_a_copy_leads_to_the_positions_that_it_is_for() -> None:
    moves = [Move(3, array("Q", (9, 12)), array("I", (0, 2))), Move(5, array("Q", (4,)), array("I", (1,)))]
    relocate = encode_moves(moves) + BLOCK
    assert messages(Kind.RELOCATE, relocate, b"third") == [(3, 12, 1)]
    assert messages(Kind.RELOCATE, relocate, b"second") == [(5, 4, 1)]


def test_a_record_that_cannot_be_read_is_named_at_least() -> None:
    assert affected(Kind.PUBLISH, 100, PUBLISH[:30], [(0, 1)]) == Affected(Kind.PUBLISH, 100, 0, [])
    assert affected(200, 100, b"", [(0, 1)]).text({}) == "the kind 200 record at LSN 0x64"


def test_texts_name_queues_and_branches() -> None:
    found = Affected(Kind.COMMIT, 100, 5, [(3, 40, 1), (4, 1, 3)])
    text = "the COMMIT record at LSN 0x64 of branch 5 (messages: orders 40, queue 4 1 to 3)"
    assert found.text({3: "orders"}) == text
    many = Affected(Kind.PUBLISH, 100, 0, [(n, 1, 1) for n in range(9)])
    assert many.text({}).endswith("queue 4 1, others)")
