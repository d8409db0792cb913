"""The end of a connection: everything is given back, then the parts are dropped if the connection is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator

from escrowmq.core.engine import Engine
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.ending import ConnectionEnding
from tests.harness.server import SimServer
from tests.unit.wire.test_flow import Site


class Ending:
    """A connection that notes how it ends."""

    def __init__(self) -> None:
        self.engine: Engine = SimServer(MemoryStorage(random.Random(1))).broker.engine
        self.done: list[str] = []
        self.ending = ConnectionEnding(self.engine, lambda: self.done.append("dropped"))
        self.flow = Site().flow

    def work(self, name: str, pieces: int) -> Iterator[None]:
        for _ in range(pieces):
            yield
        self.done.append(name)

    def release(self) -> None:
        self.ending.begin(self.flow, self.work("connection", 1))

    def go_on(self) -> None:
        self.engine.left_over.step(self.engine.requests)


def test_parts_are_dropped_after_the_last_piece_of_work_of_a_lost_connection() -> None:
    site = Ending()
    site.ending.leave(site.work("session", 2))
    site.ending.lost(site.release, site.flow)
    assert site.done == []
    while site.engine.left_over:
        site.go_on()
    assert site.done[-1] == "dropped"
    assert sorted(site.done) == ["connection", "dropped", "session"]


def test_parts_are_dropped_at_once_if_nothing_is_left() -> None:
    site = Ending()
    site.ending.lost(lambda: None, site.flow)
    assert site.done == ["dropped"]


def test_a_connection_that_is_not_lost_keeps_its_parts() -> None:
    site = Ending()
    site.release()
    assert site.ending.begun
    while site.engine.left_over:
        site.go_on()
    assert site.done == ["connection"]


def test_nothing_is_delivered_while_a_connection_ends() -> None:
    site = Ending()
    assert site.flow.writable
    site.release()
    assert not site.flow.writable
