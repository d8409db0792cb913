"""Lists that the HTTP process keeps are as current as those that it would ask for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from escrowmq.admin.http.broker import BrokerUnavailable
from escrowmq.admin.http.kept_lists import JoinedRows, KeptLists, KeptRow
from escrowmq.admin.service import AdminService
from tests.unit.admin.http.sites import HttpSite, LocalBroker
from tests.unit.admin.processes import FakeConnection
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with three queues, and what the HTTP process keeps of it."""

    def __init__(self) -> None:
        self.server, self.client = pair()
        for name in "abc":
            self.client.declare(1, name)
        self.broker = CountingBroker(self.server)
        self.lists = KeptLists(self.broker)

    def queues(self) -> dict[str, Any]:
        rows = asyncio.run(self.lists.queues.current())
        return {row.fixed["name"]: row.shape("n")["messages"] for row in rows}


class CountingBroker(LocalBroker):
    """Counts the rows of its answers."""

    def __init__(self, made: Any) -> None:
        super().__init__(made)
        self.answered: list[int] = []

    async def ask(self, command: str, **arguments: Any) -> Any:
        await asyncio.sleep(0)
        answer = await super().ask(command, **arguments)
        self.answered.append(len(answer) - 1)
        return answer


def test_queues_are_asked_for_once_and_then_only_their_changes() -> None:
    bench = Bench()
    assert bench.queues() == {"a": 0, "b": 0, "c": 0}
    bench.client.publish(1, "b", b"1")
    bench.client.declare(1, "0")
    assert bench.queues() == {"a": 0, "b": 1, "c": 0, "0": 0}
    directory = bench.server.broker.directory
    directory.delete_queue(directory.vhost("/").queue("a"))
    assert list(bench.queues()) == ["b", "c", "0"], "in the order in which they were declared"
    assert bench.queues() == {"b": 1, "c": 0, "0": 0}
    assert bench.broker.answered == [3, 2, 1, 0]


def test_a_broker_that_has_started_again_is_asked_for_everything() -> None:
    bench = Bench()
    bench.queues()
    bench.broker._operations = AdminService(bench.broker.process).operations
    bench.client.publish(1, "b", b"1")
    assert bench.queues() == {"a": 0, "b": 1, "c": 0}
    assert bench.broker.answered == [3, 3]


def test_a_broker_that_does_not_answer_leaves_the_rows_as_they_were() -> None:
    bench = Bench()
    bench.queues()
    bench.broker.gone = True
    with pytest.raises(BrokerUnavailable):
        bench.queues()
    bench.broker.gone = False
    bench.client.publish(1, "b", b"1")
    assert bench.queues() == {"a": 0, "b": 1, "c": 0}
    assert bench.broker.answered == [3, 1]


def test_requests_that_wait_at_the_same_time_share_a_question() -> None:
    bench = Bench()

    async def ask() -> None:
        first = asyncio.ensure_future(bench.lists.queues.current())
        await asyncio.sleep(0)
        await asyncio.gather(first, *(bench.lists.queues.current() for _ in range(5)))

    asyncio.run(ask())
    assert bench.broker.answered == [3, 0], "those that came later needed what was true then"


def test_rows_are_encoded_once_for_each_change() -> None:
    bench = Bench()

    async def encoded(node: str = "n") -> dict[str, bytes]:
        return {row.fixed["name"]: row.encoded(node) for row in await bench.lists.queues.current()}

    first = asyncio.run(encoded())
    bench.client.publish(1, "b", b"1")
    second = asyncio.run(encoded())
    assert second["a"] is first["a"]
    assert (json.loads(first["b"])["messages"], json.loads(second["b"])["messages"]) == (0, 1)
    assert json.loads(asyncio.run(encoded("other"))["a"])["node"] == "other"


def test_rows_are_joined_to_a_list() -> None:
    bench = Bench()
    rows = asyncio.run(bench.lists.queues.current())
    answers = JoinedRows()
    for some, node in ((rows, "n"), (rows, "n"), (rows, "other"), (rows[1:], "other")):
        assert json.loads(asyncio.run(answers.joined(some, node))) == [row.shape(node) for row in some]
    assert asyncio.run(answers.joined([], "n")) == b"[]"


def test_only_blocks_with_changed_rows_are_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for number in range(300):
        bench.client.declare(1, f"more-{number}")
    answers, encoded = bench.lists.queues.answers, list[str]()
    original = KeptRow.encoded

    def counting(row: KeptRow, node: str) -> bytes:
        encoded.append(row.fixed["name"])
        return original(row, node)

    monkeypatch.setattr(KeptRow, "encoded", counting)

    def answer() -> dict[str, int]:
        rows = asyncio.run(bench.lists.queues.current())
        return {row["name"]: row["messages"] for row in json.loads(asyncio.run(answers.joined(rows, "n")))}

    first = answer()
    assert len(encoded) == len(first) == 303
    bench.client.publish(1, "more-150", b"1")
    assert answer() == first | {"more-150": 1}
    assert len(encoded) == 303 + 100, "one block"


def test_connections_are_kept_as_well() -> None:
    site = HttpSite()
    connections = site.broker.process.connections
    first, second = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")
    connections |= {first: None, second: None}
    assert [row["name"] for row in site.get("/api/connections").json] == ["10.0.0.1:1", "10.0.0.1:2"]
    del connections[first]
    second.held_back_by = ["alarm"]
    site.broker.process.changed(first)
    site.broker.process.changed(second)
    assert [(row["name"], row["state"]) for row in site.get("/api/connections").json] == [("10.0.0.1:2", "blocked")]
