"""The changes of a list since an earlier look at it, together with the rows that a client has, are the list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from escrowmq.admin.changes import ListChanges, Variable
from escrowmq.admin.operation import Row
from tests.unit.admin.processes import CountingPieces


@dataclass(eq=False)
class Thing:
    """Something that is listed."""

    ident: int
    size: int = 0
    deleted: bool = False


@dataclass
class Things:
    """A source. `on_read` is called before each step. Changes of things are noted unless `forgetful`."""

    things: list[Thing] = field(default_factory=list)
    on_read: Callable[[], None] = lambda: None
    step: int = 2
    forgetful: bool = False
    at_last_look: dict[Thing, tuple[int, bool]] | None = None
    reads: int = 0

    def present(self) -> list[Thing]:
        return [each for each in self.things if not each.deleted]

    def changed(self) -> list[Thing] | None:
        now = {each: (each.size, each.deleted) for each in self.things}
        before, self.at_last_look = self.at_last_look, now
        if before is None:
            return None
        return [] if self.forgetful else [each for each in now | before if now.get(each) != before.get(each)]

    def fixed(self, listed: Thing) -> Row:
        return {"name": f"thing {listed.ident}"}

    def reading(self) -> Generator[None, None, Callable[[Sequence[Thing]], list[Variable | None]]]:
        def read(some: Sequence[Thing]) -> list[Variable | None]:
            self.on_read()
            self.reads += len(some)
            return [None if each.deleted or each not in self.things else (each.size,) for each in some]

        yield
        return read


class Client:
    """Keeps the sizes of the things, by their numbers, from nothing but changes."""

    def __init__(self, changes: ListChanges[Thing]) -> None:
        self.changes = changes
        self.last: list[Row] = []
        self.run, self.look = "", 0
        self.fixed: dict[int, Row] = {}
        self.sizes: dict[int, Any] = {}

    async def _ask(self) -> list[Row]:
        return await (await self.changes.since(self.run, self.look)).rows()

    def ask(self) -> list[Row]:
        """Ask once, and return the rows after the first one."""
        self.take(asyncio.run(self._ask()))
        return self.last[1:]

    def take(self, rows: list[Row]) -> None:
        self.last, (head, *others) = rows, rows
        if head["whole"]:
            self.fixed, self.sizes = {}, {}
        for row in others:
            for ident in row.get("gone", ()):
                del self.sizes[ident], self.fixed[ident]
            if "ident" in row:
                self.fixed[row["ident"]] = row.get("fixed") or self.fixed[row["ident"]]
                (self.sizes[row["ident"]],) = row["variable"]
        self.run, self.look = head["run"], head["look"]

    @property
    def was_whole(self) -> bool:
        whole: bool = self.last[0]["whole"]
        return whole


def made(count: int = 5, **options: int) -> tuple[Things, ListChanges[Thing]]:
    source = Things([Thing(ident) for ident in range(1, count + 1)])
    return source, ListChanges(source, CountingPieces(3), **options)


def test_the_first_answer_is_the_whole_list() -> None:
    _, changes = made(3)
    client = Client(changes)
    client.ask()
    assert client.was_whole
    assert client.sizes == {1: 0, 2: 0, 3: 0}
    assert client.fixed[2] == {"name": "thing 2"}


def test_an_unchanged_list_is_answered_without_rows() -> None:
    client = Client(made()[1])
    client.ask()
    assert client.ask() == []
    assert not client.was_whole


def test_only_what_has_changed_is_answered_and_without_its_fixed_part() -> None:
    source, changes = made()
    client = Client(changes)
    client.ask()
    source.things[2].size = 7
    assert client.ask() == [{"ident": 3, "variable": (7,)}]
    assert client.ask() == []


def test_a_new_object_is_answered_with_both_parts() -> None:
    source, changes = made(2)
    client = Client(changes)
    client.ask()
    source.things.append(Thing(3, 1))
    assert client.ask() == [{"ident": 3, "variable": (1,), "fixed": {"name": "thing 3"}}]


def test_each_client_gets_the_changes_since_its_own_last_look() -> None:
    source, changes = made()
    often, seldom = Client(changes), Client(changes)
    often.ask()
    seldom.ask()
    for size, thing in enumerate(source.things[:4], 1):
        thing.size = size
        often.ask()
    source.things.append(Thing(9))
    source.things.pop(0)
    assert len(often.ask()) == 2
    assert [row.get("ident", row.get("gone")) for row in seldom.ask()] == [[1], 9, 4, 3, 2]
    assert often.sizes == seldom.sizes == {2: 2, 3: 3, 4: 4, 5: 0, 9: 0}


def test_objects_that_are_gone_are_named() -> None:
    source, changes = made()
    client = Client(changes)
    client.ask()
    del source.things[1:3]
    client.ask()
    assert client.sizes.keys() == {1, 4, 5}
    assert client.ask() == []


def test_an_object_that_goes_while_the_list_is_looked_at_is_gone() -> None:
    source, changes = made()
    client = Client(changes)
    client.ask()

    def delete() -> None:
        source.things[4].deleted = True

    source.on_read = delete
    client.ask()
    assert client.sizes.keys() == {1, 2, 3, 4}
    assert client.ask() == []


def test_a_client_that_has_missed_more_than_is_remembered_gets_the_whole_list() -> None:
    source, changes = made(most_gone=2)
    often, seldom = Client(changes), Client(changes)
    often.ask()
    seldom.ask()
    for _ in range(3):
        source.things.pop()
        often.ask()
        assert not often.was_whole
    seldom.ask()
    assert seldom.was_whole
    assert seldom.sizes == often.sizes == {1: 0, 2: 0}


def test_a_look_of_another_run_or_of_the_future_is_not_known() -> None:
    source, changes = made()
    client = Client(changes)
    client.ask()
    client.changes = ListChanges(source, CountingPieces())
    client.ask()
    assert client.was_whole
    client.look += 1
    client.ask()
    assert client.was_whole


def test_requests_at_the_same_time_look_one_after_the_other() -> None:
    source, changes = made(20)
    clients = [Client(changes) for _ in range(3)]

    def grow() -> None:
        for thing in source.things:
            thing.size += 1

    source.on_read = grow

    async def ask_together() -> list[list[Row]]:
        return await asyncio.gather(*(client._ask() for client in clients))

    for client, rows in zip(clients, asyncio.run(ask_together()), strict=True):
        client.take(rows)
    source.on_read = lambda: None
    for client in clients:
        client.ask()
        assert client.sizes == {thing.ident: thing.size for thing in source.things}


def test_a_look_reads_what_has_changed_and_a_share_of_the_rest() -> None:
    source, changes = made(40, round_looks=20)
    client = Client(changes)
    client.ask()
    assert source.reads == 40
    source.things[7].size = 1
    client.ask()
    assert source.reads == 40 + 1 + 2


def test_changes_that_were_not_noted_are_found_within_two_rounds_of_looks() -> None:
    source, changes = made(40, round_looks=20)
    client = Client(changes)
    client.ask()
    source.forgetful = True
    for ident in (100, 101):
        source.things[7].size += 1
        source.things.append(Thing(ident))
        del source.things[0]
        for _ in range(2 * 20 + 1):  # the gone one is missed when the new one is known
            client.ask()
        assert client.sizes == {thing.ident: thing.size for thing in source.things}


def test_a_look_that_fails_is_followed_by_one_at_everything() -> None:
    source, changes = made(6)
    client = Client(changes)
    client.ask()
    source.things[5].size = 1

    def fail() -> None:
        raise RuntimeError("the look fails")

    source.on_read = fail
    with pytest.raises(RuntimeError):
        client.ask()
    source.on_read = lambda: None
    client.ask()
    assert client.sizes == {thing.ident: thing.size for thing in source.things}


def test_a_look_takes_its_objects_in_steps() -> None:
    source, changes = made(30)
    read: list[int] = []
    source.on_read = lambda: read.append(0)
    client = Client(changes)
    client.ask()
    pieces = changes._pieces
    assert isinstance(pieces, CountingPieces)
    assert len(read) == 30 // source.step
    assert pieces.count > 30 // source.step // 3 + 30 // 3, "steps of the look, and then of the rows"
