"""The forms of JSON for operators' tools."""

from __future__ import annotations

from escrowmq.wire.rocketmq.remoting.administration.documents import json_reply, table_of_queues


def test_a_table_has_objects_as_keys() -> None:
    table = table_of_queues("b", [(("t", 0), 1), (("t", 1), {"a": 2})])
    first, second = (f'{{"brokerName": "b", "queueId": {queue}, "topic": "t"}}' for queue in (0, 1))
    assert table == f'{{{first}:1,{second}:{{"a": 2}}}}'
    assert table_of_queues("b", []) == "{}"


def test_a_document_is_the_body_of_an_answer() -> None:
    assert json_reply({"a": 1}).response.body == b'{"a":1}'
