"""The numbers of requests and of results in classic remoting."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class Code(IntEnum):
    """Requests."""

    SEND = 10
    PULL = 11
    QUERY_MESSAGE = 12
    QUERY_OFFSET = 14
    UPDATE_OFFSET = 15
    UPDATE_TOPIC = 17
    ALL_TOPIC_CONFIGS = 21
    BROKER_SETTINGS = 26
    BROKER_RUNTIME = 28
    SEARCH_OFFSET = 29
    MAX_OFFSET = 30
    MIN_OFFSET = 31
    EARLIEST_TIME = 32
    VIEW_MESSAGE = 33
    HEARTBEAT = 34
    UNREGISTER = 35
    SEND_BACK = 36
    END_TRANSACTION = 37
    CONSUMERS_OF_GROUP = 38
    CHECK_TRANSACTION = 39
    CONSUMERS_CHANGED = 40
    LOCK_QUEUES = 41
    UNLOCK_QUEUES = 42
    CHECK_CLIENT = 46
    KEY_VALUE = 101
    DELETE_KEY_VALUE = 102
    ROUTE = 105
    CLUSTER = 106
    UPDATE_GROUP = 200
    ALL_GROUP_CONFIGS = 201
    TOPIC_STATS = 202
    CONSUMER_CONNECTIONS = 203
    PRODUCER_CONNECTIONS = 204
    ALL_TOPICS = 206
    DELETE_GROUP = 207
    CONSUME_STATS = 208
    DELETE_TOPIC = 215
    DELETE_TOPIC_ROUTE = 216
    RESET_PROGRESS = 222
    TOPICS_OF_CLUSTER = 224
    GROUPS_OF_TOPIC = 300
    SYSTEM_TOPICS = 304
    SYSTEM_TOPICS_OF_BROKER = 305
    RUNNING_INFO = 307
    CONSUME_DIRECTLY = 309
    SEND_V2 = 310
    COPY_PROGRESS = 314
    RATES = 315
    BROKER_CONSUME_STATS = 317
    NAME_SERVER_SETTINGS = 319
    SEND_BATCH = 320
    RESUME_HALF = 323
    ALL_PRODUCERS = 328
    TOPICS_OF_GROUP = 343
    SUBSCRIPTION_OF_GROUP = 345
    TOPIC_CONFIG = 351
    GROUP_CONFIG = 352
    LITE_PULL = 361
    RECALL = 370


class ResultCode(IntEnum):
    """Results of requests."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    NOT_SUPPORTED = 3
    MESSAGE_ILLEGAL = 13
    NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_TIMEOUT = 207
    ILLEGAL_OPERATION = 604


_POP: Final = "pop consumption is not supported over remoting; let the client rebalance (clientRebalance), or use gRPC"
_REPLY: Final = "replies to requests of producers are not supported; send an ordinary message to a topic for replies"
UNSUPPORTED: Final[Mapping[int, str]] = MappingProxyType(
    {
        324: _REPLY,
        325: _REPLY,
        400: _POP,
        401: _POP,
        200050: _POP,
        200051: _POP,
        200052: _POP,
        200053: _POP,
        200054: _POP,
        200055: _POP,
        200151: _POP,
    }
)
"""What clients are told about requests that the broker knows and does not serve, by code."""
