"""Entries: their number in the block, order and representation."""

from __future__ import annotations

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope


def test_an_entry_has_its_number_in_the_block() -> None:
    run = Run(Envelope("", "q"), first=100, time=0, lsn=7, index=3)
    assert [Entry(position, b"", run).start for position in (100, 101, 105)] == [3, 4, 8]


def test_entries_sort_by_position() -> None:
    run = Run(Envelope("", "q"), 1, 0)
    entries = [Entry(position, b"", run) for position in (3, 1, 2)]
    assert [entry.position for entry in sorted(entries)] == [1, 2, 3]
    assert repr(entries[0]) == "Entry(3, 0 bytes)"
