"""The index of messages: what was added is found by id, correlation id and place."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.history.events import IndexedBlock, IndexedBranch, IndexedPlacement, MessageEvent
from escrowmq.history.index import FOLDER, NAME, WIDE, MessageIndex

JOURNAL = b"journal"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[MessageIndex]:
    made = MessageIndex(tmp_path)
    made.begin(JOURNAL)
    made.add_queue(1, "/", "orders", 10)
    made.add_queue(2, "v", "bills", 10)
    yield made
    made.close()


def places(index: MessageIndex, ident: str) -> list[tuple[str | None, int | None]]:
    return [(place.name, place.position) for place in index.search(ident)]


def lives(index: MessageIndex, queue: int, position: int) -> list[str]:
    return [moment.what for moment in index.life(queue, position)]


def test_a_message_is_found_by_each_id_on_each_queue(index: MessageIndex) -> None:
    index.add([IndexedBlock(100, [("a", "x"), ("b", None), (None, None)], [(1, 5), (2, 0)])], 100, 7)
    assert places(index, "a") == [("orders", 5), ("bills", 0)]
    assert places(index, "b") == [("orders", 6), ("bills", 1)]
    assert places(index, "x") == places(index, "a")
    assert index.search("c") == []
    (place,) = index.at("/", "orders", 5)
    assert (place.message_id, place.correlation_id, place.vhost) == ("a", "x", "/")
    assert index.at("/", "orders", 7) == []


@pytest.mark.parametrize("written", ["{}", "ID:{}", "urn:uuid:{}", "ID:AMQP_UUID:{}"])
def test_a_uuid_is_found_as_each_client_writes_it(index: MessageIndex, written: str) -> None:
    uuid = "8c24e7b7-2002-3bc0-bb4b-a8af3631019d"
    index.add([IndexedBlock(100, [(uuid, None), ("other", "x")], [(1, 5)])], 100, 7)
    index.add([IndexedBlock(200, [(None, uuid)], [(1, 7)])], 200, 8)
    ident = written.format(uuid)
    assert places(index, ident) == [("orders", 5), ("orders", 7)]
    assert [place.position for place in index.with_id(ident)] == [5]
    assert [place.position for place in index.with_correlation(ident)] == [7]


def test_half_of_a_surrogate_pair_in_a_text_is_a_question_mark(index: MessageIndex) -> None:
    index.add([IndexedBlock(100, [("\udcff", "\ud800x")], [(1, 0)]), IndexedBranch(3, "1:\udcff:")], 100, 7)
    index.add([MessageEvent(1, 0, 1, "published", "\udcff")], 100, 7)
    assert places(index, "?x") == [("orders", 0)]
    assert lives(index, 1, 0) == ["published"]


def test_an_index_knows_that_its_file_was_deleted(index: MessageIndex, tmp_path: Path) -> None:
    seen = [index.in_place]
    (tmp_path / FOLDER / NAME).unlink()
    seen.append(index.in_place)
    (tmp_path / FOLDER / NAME).touch()
    seen.append(index.in_place)
    assert seen == [True, False, False]


def test_messages_of_a_prepared_branch_get_their_places_at_the_commit(index: MessageIndex) -> None:
    index.add([IndexedBranch(3, "1:a:b"), IndexedBlock(100, [("a", None), ("b", None)], [])], 100, 7)
    assert places(index, "b") == [(None, None)]
    index.add([IndexedPlacement(100, 2, 8), IndexedPlacement(100, 1, 0)], 200, 8)
    assert places(index, "b") == [(None, None), ("orders", 1), ("bills", 9)]
    assert (index.xid_of(3), index.xid_of(4)) == ("1:a:b", None)


def test_a_life_has_the_events_of_a_position_in_order(index: MessageIndex) -> None:
    index.add([MessageEvent(1, 5, 3, "published")], 100, 7)
    index.add([MessageEvent(1, 0, WIDE + 1, "reserved"), MessageEvent(1, 6, 1, "returned")], 200, 8)
    index.add([MessageEvent(1, 6, WIDE, "accepted"), MessageEvent(2, 6, 1, "expired")], 300, 9)
    assert lives(index, 1, 6) == ["published", "reserved", "returned", "accepted"]
    assert lives(index, 1, 5) == ["published", "reserved"]
    assert lives(index, 1, WIDE) == ["reserved", "accepted"]
    assert lives(index, 1, WIDE + 5) == ["accepted"]
    assert lives(index, 1, WIDE + 6) == []


def test_what_may_be_read_again_is_forgotten_first(index: MessageIndex) -> None:
    index.add([MessageEvent(1, 5, 1, "published")], 100, 7)
    index.add([MessageEvent(1, 5, 1, "accepted"), IndexedBlock(200, [("a", None)], [(1, 5)])], 200, 8)
    index.commit(200, 250)
    assert index.end_lsn == 250
    assert index.begin(JOURNAL) == 200
    assert (lives(index, 1, 5), places(index, "a")) == (["published"], [])


def test_another_journal_begins_a_new_index(index: MessageIndex) -> None:
    index.add([MessageEvent(1, 5, 1, "published")], 100, 7)
    index.commit(100, 150)
    assert index.begin(b"another") == 0
    assert (lives(index, 1, 5), index.numbers("/", "orders")) == ([], [])


def test_what_the_journal_no_longer_has_is_forgotten(index: MessageIndex) -> None:
    index.add([MessageEvent(1, 5, 1, "published"), IndexedBlock(100, [("a", None)], [(1, 5)])], 100, 7)
    index.add([MessageEvent(1, 5, 1, "accepted")], 200, 8)
    index.prune(200)
    assert (lives(index, 1, 5), places(index, "a")) == (["accepted"], [])


def test_others_read_what_was_committed_and_only_the_owner_may_open_it(index: MessageIndex, tmp_path: Path) -> None:
    index.add([IndexedBlock(100, [("a", None)], [(1, 5)])], 100, 7)
    reader = MessageIndex(tmp_path, read_only=True)
    assert places(index, "a") == [("orders", 5)]
    with pytest.raises(sqlite3.Error):
        reader.clear()
    index.commit(100, 150)
    assert places(reader, "a") == [("orders", 5)]
    assert stat.S_IMODE((tmp_path / FOLDER / NAME).stat().st_mode) == 0o600
    reader.close()


def test_without_an_index_reading_fails(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error):
        MessageIndex(tmp_path, read_only=True)
