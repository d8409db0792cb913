"""Searches by key are done in pieces, and are bounded."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.remoting import searches
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.frames import Command
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, server


def fields(key: str = "k", **others: str) -> dict[str, str]:
    return {"topic": "t", "key": key, "maxNum": "99", "beginTimestamp": "0", "endTimestamp": str(1 << 62), **others}


def turns(client: Client, count: int) -> None:
    for _ in range(count):
        client.server.now += 1
        client.server.end_turn()


def filled(count: int) -> Client:
    client = Client(server())
    for i in range(count):
        client.publish("t", str(i).encode(), KEYS="k")
        client.server.now += 1000
    return client


def searched(client: Client, **others: str) -> Command:
    number = client.send(Code.QUERY_MESSAGE, fields(**others))
    turns(client, 40)
    found = client.response(number)
    assert found is not None
    return found


def test_a_turn_examines_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "PIECE", 2)
    client = filled(4)
    number = client.send(Code.QUERY_MESSAGE, fields())
    assert client.response(number) is None
    turns(client, 40)
    found = client.response(number)
    assert found is not None
    assert [each.content.body for each in messages(found.body)] == [b"0", b"1", b"2", b"3"]


def test_only_the_newest_messages_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "PIECE", 2)
    monkeypatch.setattr(searches, "MOST_EXAMINED", 2)
    client = filled(4)
    assert [each.content.body for each in messages(searched(client).body)] == [b"2", b"3"]
    missing = searched(client, key="none")
    assert missing.code == ResultCode.QUERY_NOT_FOUND
    assert missing.remark is not None
    assert "the newest 2 messages" in missing.remark


def test_a_time_range_and_a_number_limit_what_is_found() -> None:
    client = filled(5)
    begin = client.server.now - 5000
    found = searched(client, beginTimestamp=str(begin + 1000), endTimestamp=str(begin + 3000))
    assert [each.content.body for each in messages(found.body)] == [b"1", b"2", b"3"]
    assert len(messages(searched(client, maxNum="2").body)) == 2


def test_a_client_has_a_few_searches_at_a_time() -> None:
    client = filled(1)
    numbers = [client.send(Code.QUERY_MESSAGE, fields()) for _ in range(searches.MOST_SEARCHES + 1)]
    busy = client.response(numbers[-1])
    assert busy is not None
    assert busy.code == ResultCode.SYSTEM_BUSY
    turns(client, 40)
    assert client.call(Code.QUERY_MESSAGE, fields("")).code == ResultCode.INVALID_PARAMETER
    assert searched(client).code == ResultCode.SUCCESS


def test_a_lost_client_ends_its_search() -> None:
    client = filled(1)
    client.send(Code.QUERY_MESSAGE, fields())
    client.lose()
    turns(client, 40)


def test_a_topic_that_does_not_exist_is_refused() -> None:
    assert Client(server()).call(Code.QUERY_MESSAGE, fields()).code == ResultCode.QUERY_NOT_FOUND
