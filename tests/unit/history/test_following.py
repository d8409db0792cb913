"""The index follows a journal: in pieces, from where it was, and whatever has been deleted or damaged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_targets
from escrowmq.core.records.references import Range
from escrowmq.core.records.settling import encode_settle
from escrowmq.history import following
from escrowmq.history.following import bring_up_to_date, written_at
from escrowmq.history.index import FOLDER, NAME, MessageIndex
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from tests.pipeline.identified import of_identities
from tests.unit.inspection.journals import Writer


def publish(ident: str, first: int) -> tuple[int, list[bytes]]:
    envelope = Envelope("ex", "key", Properties(message_id=ident).encode(), durable=True, protocol=PROTOCOL)
    return Kind.PUBLISH, [encode_targets([(1, first)]), *encode_block(1, envelope, [b"body"])]


def settle(first: int) -> tuple[int, list[bytes]]:
    return Kind.SETTLE, [encode_settle(1, Outcome.ACCEPTED, [Range(first, 1)])]


def written(folder: Path, messages: int, segment_bytes: int = 200) -> Writer:
    """Write a declaration, and a publish and a settlement of each message, in a frame of its own."""
    writer = Writer(folder, segment_bytes)
    declared = encode_change(vhost="/", id=1, name="q", auto_delete=False, arguments={})
    writer.sync((Kind.QUEUE_DECLARED, [declared]))
    for number in range(messages):
        writer.sync(publish(f"m{number}", number))
        writer.sync(settle(number))
    return writer


def follow(folder: Path) -> list[int]:
    index = MessageIndex(folder)
    try:
        return list(bring_up_to_date(folder, index))
    finally:
        index.close()


def contents(folder: Path) -> list[tuple[object, ...]]:
    """Return all rows about messages."""
    with sqlite3.connect(folder / FOLDER / NAME) as database:
        found = [
            database.execute(f"select * from {table} order by lsn, 1, 2").fetchall() for table in ("message", "event")
        ]
    return [*found[0], *found[1]]


def told(folder: Path, ident: str) -> list[str]:
    index = MessageIndex(folder, read_only=True)
    try:
        (place,) = index.search(ident)
        assert place.name == "q"
        assert place.queue is not None
        assert place.position is not None
        return [moment.what for moment in index.life(place.queue, place.position)]
    finally:
        index.close()


def test_every_message_has_its_life(tmp_path: Path) -> None:
    writer = written(tmp_path, 5)
    follow(tmp_path)
    assert [told(tmp_path, f"m{number}") for number in range(5)] == [["published", "accepted"]] * 5
    assert len(list(tmp_path.glob("*.log"))) > 2
    writer.journal.close()


def test_a_dead_letter_is_told_as_one_without_the_branch_of_the_broker(tmp_path: Path) -> None:
    of_identities(tmp_path)
    follow(tmp_path)
    with closing(MessageIndex(tmp_path, read_only=True)) as index:
        lives = {
            place.name: [(moment.what, moment.detail) for moment in index.life(place.queue or 0, place.position or 0)]
            for place in index.search("m-1")
        }
    assert lives["dead"] == [("dead-lettered", "from orders: rejected")]
    assert [what for what, _ in lives["orders"]] == ["published", "delivered", "rejected"]
    assert not any("branch" in detail for life in lives.values() for _, detail in life)


@pytest.mark.parametrize("piece", [1, 200, 10_000])
def test_an_index_that_is_made_in_pieces_and_later_continued_is_the_same(
    tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PIECE", piece)
    writer = written(tmp_path, 4)
    reached = follow(tmp_path)
    assert reached == sorted(reached)
    assert follow(tmp_path)[-1] == reached[-1]  # nothing is added twice
    for number in range(4, 7):
        writer.sync(publish(f"m{number}", number), settle(number))
        follow(tmp_path)
    whole = contents(tmp_path)
    (tmp_path / FOLDER / NAME).unlink()
    for path in (tmp_path / FOLDER).iterdir():
        path.unlink()
    monkeypatch.undo()
    follow(tmp_path)
    assert contents(tmp_path) == whole
    writer.journal.close()


def test_a_last_frame_that_a_power_cut_has_removed_is_forgotten(tmp_path: Path) -> None:
    writer = written(tmp_path, 2, segment_bytes=1 << 20)
    (segment,) = tmp_path.glob("*.log")
    before = segment.read_bytes()
    writer.sync(publish("lost", 2))
    follow(tmp_path)
    assert told(tmp_path, "lost") == ["published"]
    writer.journal.close()
    segment.write_bytes(before)
    again = Writer(tmp_path, 1 << 20)
    again.sync(publish("new", 2))
    again.journal.close()
    follow(tmp_path)
    assert told(tmp_path, "new") == ["published"]
    index = MessageIndex(tmp_path, read_only=True)
    assert index.search("lost") == []
    index.close()


def test_segments_that_the_broker_has_deleted_are_skipped_and_forgotten(tmp_path: Path) -> None:
    writer = written(tmp_path, 6)
    follow(tmp_path)
    segments = sorted(tmp_path.glob("*.log"))
    for path in segments[:2]:
        path.unlink()
    follow(tmp_path)
    index = MessageIndex(tmp_path, read_only=True)
    assert index.search("m0") == []
    assert index.numbers("/", "q") == [1]
    index.close()
    assert told(tmp_path, "m5") == ["published", "accepted"]
    writer.journal.close()


def test_names_come_from_a_snapshot_if_their_records_are_gone(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 150)
    for number in range(6):
        writer.sync(publish(f"m{number}", number))
    declared = encode_change(vhost="/", id=1, name="q", auto_delete=False, arguments={})
    snapshot = writer.journal.begin_snapshot([(Kind.QUEUE_DECLARED, declared)], 7)
    snapshot.write()
    writer.journal.snapshot_done(snapshot)
    work = writer.journal.housekeeping()
    assert work is not None
    work()
    writer.journal.close()
    min(tmp_path.glob("*.log")).unlink()
    follow(tmp_path)
    assert told(tmp_path, "m5") == ["published"]


def test_a_record_that_cannot_be_read_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = Writer(tmp_path)
    writer.sync((Kind.PUBLISH, [b"\x01\x00"]), (200, [b"new"]), publish("m", 0))
    follow(tmp_path)
    index = MessageIndex(tmp_path, read_only=True)
    assert len(index.search("m")) == 1
    index.close()
    assert "is not in the index" in caplog.text
    writer.journal.close()


def test_one_sees_whether_anything_was_written(tmp_path: Path) -> None:
    writer = written(tmp_path, 1)
    before = written_at(tmp_path)
    assert written_at(tmp_path) == before
    writer.sync(publish("m", 1))
    assert written_at(tmp_path) != before
    writer.journal.close()


def test_an_empty_folder_has_nothing_to_add(tmp_path: Path) -> None:
    assert follow(tmp_path) == []
