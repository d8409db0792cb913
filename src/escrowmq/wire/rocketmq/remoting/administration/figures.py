"""Figures and settings of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.wire.rocketmq.remoting.administration.documents import json_reply
from escrowmq.wire.rocketmq.remoting.administration.topics import MINUTE_MS, published
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import text
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

_PUT_NUMBERS: Final = "TOPIC_PUT_NUMS"
_WINDOWS: Final = {"statsMinute": MINUTE_MS, "statsHour": 60 * MINUTE_MS, "statsDay": 24 * 60 * MINUTE_MS}
_UNKNOWN: Final = (
    "bootTimestamp",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "dispatchBehindBytes",
    "earliestMessageTimeStamp",
    "msgGetTotalTodayNow",
    "msgGetTotalTodayMorning",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
    "timerOffsetBehind",
    "timerReadBehind",
)
"""Figures that mqadmin needs and this broker does not have."""


def broker_runtime(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return figures about the broker, and about the topics that the user may see."""
    del request
    topics = connection.catalogue.all()
    held = sum(stream.end - stream.begin for topic in topics for stream in topic.streams)
    rate = sum(published(connection, topic, MINUTE_MS) for topic in topics) / 60
    table = dict.fromkeys(_UNKNOWN, "0") | {
        "brokerActive": "true",
        "brokerVersion": "479",
        "brokerVersionDesc": "V5_3_3",
        "commitLogMaxOffset": str(connection.engine.log.end_lsn),
        "getTransferredTps": "0 0 0",
        "msgPutTotalTodayNow": str(held),
        "putTps": f"{rate:.2f} {rate:.2f} {rate:.2f}",
    }
    return json_reply({"table": table})


def topic_rates(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return how many messages a topic has received in the last minute, hour and day."""
    name, key = text(request.fields, "statsName"), text(request.fields, "statsKey")
    topic = connection.catalogue.seen(key) if name == _PUT_NUMBERS else None
    if topic is None:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"The stats <{name[:100]}> <{key[:200]}> not exist")
    found = {}
    for window, length_ms in _WINDOWS.items():
        count = published(connection, topic, length_ms)
        found[window] = {"avgpt": 0.0, "sum": count, "tps": round(count * 1000 / length_ms, 2)}
    return json_reply(found)


def broker_settings(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of the broker that tools know by RocketMQ's names."""
    del request
    options, half = connection.options, connection.broker.half.options.check
    return _settings(
        {
            "autoCreateSubscriptionGroup": "true",
            "autoCreateTopicEnable": str(options.auto_create).lower(),
            "brokerClusterName": options.cluster,
            "brokerId": "0",
            "brokerName": options.broker_name,
            "brokerRole": "ASYNC_MASTER",
            "defaultTopicQueueNums": str(options.partitions),
            "enablePropertyFilter": "true",
            "flushDiskType": "SYNC_FLUSH",
            "listenPort": str(options.broker_port),
            "maxMessageSize": str(connection.largest_body),
            "transactionCheckInterval": str(half.interval_ms),
            "transactionCheckMax": str(half.checks),
            "transactionTimeOut": str(half.timeout_ms),
        }
    )


def name_server_settings(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of the name server."""
    del request
    return _settings(
        {"clusterTest": "false", "orderMessageEnable": "false", "brokerName": connection.options.broker_name}
    )


def _settings(found: dict[str, str]) -> HandlerReply:
    return success(body="".join(f"{name}={value}\n" for name, value in sorted(found.items())).encode())
