"""The file with the places of segments: what is written is read, and anything else is no hint."""

from __future__ import annotations

import pytest

from escrowmq.journal.memory import MemoryStorage
from escrowmq.replica.tail import SegmentPlace
from escrowmq.server.replica.places import NAME, PlaceNotes, TakeOver, read_places, read_take_overs, write_places
from tests.unit.journal.journals import memory

PLACES = [SegmentPlace(0, 1, 1, b"12345678"), SegmentPlace(4096, 70, 3, b"abcdefgh")]


def test_places_are_read_back() -> None:
    disk = memory()
    write_places(disk, "the log", PLACES)
    write_places(disk, "the log", PLACES[1:])
    assert read_places(disk, "the log") == PLACES[1:]
    assert disk.names() == [NAME]


def test_places_of_another_log_are_no_hint() -> None:
    disk = memory()
    write_places(disk, "the log", PLACES)
    assert read_places(disk, "another") == []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"log": "the log"}', b'{"log": "the log", "segments": [1]}'])
def test_a_damaged_file_is_no_hint(data: bytes) -> None:
    disk: MemoryStorage = memory()
    disk.create(NAME)
    disk.write(NAME, 0, data)
    assert read_places(disk, "the log") == []


def test_without_a_file_there_is_no_hint() -> None:
    assert read_places(memory(), "the log") == []


def test_take_overs_are_read_back() -> None:
    disk = memory()
    found = [TakeOver(1, "a", "amqp://a", 1.5), TakeOver(2, "b", "amqp://b", 2.5, "a", "silent", 3.2)]
    write_places(disk, "the log", PLACES, found)
    assert read_take_overs(disk, "the log") == found
    assert read_take_overs(disk, "another") == []


def test_the_file_is_written_only_when_something_new_is_to_be_noted() -> None:
    disk = memory()
    notes, take_over = PlaceNotes(disk, "the log"), TakeOver(1, "n1", "amqp://n1", 5.0)
    notes.write([], [take_over])
    assert disk.names() == []
    notes.write(PLACES, [take_over])
    assert (notes.segments(), notes.take_overs()) == (PLACES, [take_over])
    write_places(disk, "the log", [])
    notes.write(PLACES, [take_over])
    assert notes.segments() == []
    notes.write(PLACES, [take_over, take_over._replace(epoch=2)])
    assert notes.segments() == PLACES
