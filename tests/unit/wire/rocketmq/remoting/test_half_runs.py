"""Half messages and decisions of classic remoting that arrive together."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.remoting import half_runs
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from tests.unit.wire.rocketmq.remoting.clients import Client
from tests.unit.wire.rocketmq.remoting.test_runs import bodies, end, half, ready, send, together


def records(client: Client) -> int:
    """Return the number of records that were written."""
    return client.server.journal.stats.records


@pytest.mark.rule("HALF-1", "HALF-2")
def test_half_messages_that_arrive_together_are_one_record_and_so_are_their_commits() -> None:
    client = ready()
    together(client, half(1))
    before = records(client)
    found = together(client, half(2), half(3))
    assert records(client) == before + 1
    together(client, *(end(answer, 8) for answer in found))
    assert records(client) == before + 2
    assert bodies(client, 0, 1) == [b"body 2", b"body 3"]


def test_messages_keep_the_order_of_sends_and_commits_that_arrive_together() -> None:
    client = ready()
    first = together(client, half(1), half(2), half(3))
    second = together(client, end(first[0], 8), half(4), send(5), end(first[1], 8), send(6), end(first[2], 8))
    assert [each.code for each in second] == [ResultCode.SUCCESS] * 3
    assert bodies(client, 0, 1) == [b"body 1", b"body 5", b"body 2", b"body 6", b"body 3"]


@pytest.mark.rule("HALF-3")
def test_a_contrary_decision_among_others_is_refused_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ready()
    faults: list[str] = []
    monkeypatch.setattr(client.server, "failed", lambda _endpoint, _code, text: faults.append(text))
    (answer,) = together(client, half(1))
    together(client, end(answer, 8), end(answer, 12))
    assert bodies(client, 0, 1) == [b"body 1"]
    assert [text.partition(":")[0] for text in faults] == ["END_TRANSACTION of half message 1"]


@pytest.mark.rule("HALF-1")
def test_many_bytes_of_half_messages_are_stored_in_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ready()
    together(client, half(1))
    before = records(client)
    monkeypatch.setattr(half_runs, "MOST_BYTES", 10)
    found = together(client, half(2), half(3))
    assert [each.code for each in found] == [ResultCode.SUCCESS] * 2
    assert records(client) == before + 2


@pytest.mark.rule("FAIR-3")
def test_a_half_message_beyond_the_limit_is_refused_and_the_others_are_stored() -> None:
    client = ready()
    client.server.broker.half.options.per_user = 1
    assert [each.code for each in together(client, half(1), half(2))] == [ResultCode.SUCCESS, ResultCode.SYSTEM_BUSY]


@pytest.mark.rule("FAIR-3")
def test_first_half_messages_that_arrive_together_while_memory_is_scarce_are_refused() -> None:
    client = ready()
    client.server.broker.engine.scarcity = "low on memory"
    assert [each.code for each in together(client, half(1), half(2))] == [ResultCode.SYSTEM_BUSY] * 2
    client.server.broker.engine.scarcity = ""
    assert together(client, half(1))[0].code == ResultCode.SUCCESS
