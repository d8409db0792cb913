"""The forms of JSON in which answers to operators' tools are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success

VERSION: Final = {"counter": 0, "stateVersion": 0, "timestamp": 0}
"""The version of a table, by which brokers of RocketMQ compare theirs."""


def json_reply(found: Mapping[str, Any]) -> HandlerReply:
    """Return a JSON object as an answer."""
    return success(body=json.dumps(found, separators=(",", ":")).encode())


def table_of_queues(broker_name: str, rows: Iterable[tuple[tuple[str, int], object]]) -> str:
    """Return rows by topic and queue. Their keys are objects, which JSON does not have but the clients' library writes
    and reads.
    """
    dump: Callable[[object], str] = json.dumps
    parts = [
        dump({"brokerName": broker_name, "queueId": queue, "topic": topic}) + ":" + dump(row)
        for (topic, queue), row in rows
    ]
    return f"{{{','.join(parts)}}}"
