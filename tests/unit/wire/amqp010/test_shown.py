"""Messages that were shown to browsing subscriptions."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp010 import shown
from escrowmq.wire.amqp010.shown import Shown
from tests.unit.core.site import Site

RUN = Run(Envelope("", "q"), 0, 0)


def entries(*positions: int) -> list[Entry]:
    return [Entry(position, b"", RUN) for position in positions]


def test_each_message_is_taken_once() -> None:
    queue, found = Site().queue(), Shown()
    found.add(10, queue, entries(1, 2, 3, 7, 8))
    assert len(found) == 2
    assert [tuple(run) for run in found.take(11, 13, 100)[0]] == [(11, queue, 2, 2), (13, queue, 7, 1)]
    taken, following = found.take(0, 100, 100)
    assert [tuple(run) for run in taken] == [(10, queue, 1, 1), (14, queue, 8, 1)]
    assert following == 101
    assert found.take(0, 100, 100) == ([], 101)


def test_at_most_so_many_are_taken_together() -> None:
    queue, found = Site().queue(), Shown()
    found.add(0, queue, entries(*range(1, 11)))
    runs, following = found.take(2, 100, 4)
    assert ([tuple(run) for run in runs], following) == ([(2, queue, 3, 4)], 6)
    runs, following = found.take(following, 100, 100)
    assert ([tuple(run) for run in runs], following) == ([(6, queue, 7, 4)], 101)


@pytest.mark.rule("FAIR-3")
def test_old_messages_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "MOST", 10)
    queue, found = Site().queue(), Shown()
    found.add(0, queue, entries(*range(1, 101, 2)))
    assert len(found) <= 10
    (last,) = found.take(49, 49, 1)[0]
    assert last.position == 99
    found.clear()
    assert found.take(0, 100, 100)[0] == []
