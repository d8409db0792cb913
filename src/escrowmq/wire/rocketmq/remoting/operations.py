"""The operations of the core that each request asks for, as data (SEC-1)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from escrowmq.core.access.table import Operation
from escrowmq.wire.rocketmq.remoting.codes import Code

_SEND: Final = (Operation.PUBLISH, Operation.STORE_HALF, Operation.DECLARE_TOPIC)
_CONSUME: Final = (Operation.CONSUME_GROUP, Operation.SETTLE_GROUP, Operation.DECLARE_GROUP)
_OWN_GROUP: Final = (Operation.SETTLE_GROUP, Operation.DECLARE_GROUP)
_TOPICS: Final = (Operation.DESCRIBE_TOPIC,)
_GROUPS: Final = (Operation.DESCRIBE_GROUP,)
_NONE: Final[tuple[Operation, ...]] = ()

OPERATIONS: Final[Mapping[Code, tuple[Operation, ...]]] = MappingProxyType(
    {
        Code.SEND: _SEND,
        Code.SEND_V2: _SEND,
        Code.SEND_BATCH: _SEND,
        Code.END_TRANSACTION: (Operation.DECIDE_HALF,),
        Code.PULL: _CONSUME,
        Code.LITE_PULL: _CONSUME,
        Code.HEARTBEAT: (Operation.JOIN_PRODUCERS, *_CONSUME),
        Code.UNREGISTER: _NONE,
        Code.CONSUMERS_OF_GROUP: (Operation.SETTLE_GROUP,),
        Code.CHECK_CLIENT: _NONE,
        Code.QUERY_OFFSET: (Operation.CONSUME_GROUP, Operation.SETTLE_GROUP),
        Code.UPDATE_OFFSET: _CONSUME,
        Code.MAX_OFFSET: _TOPICS,
        Code.MIN_OFFSET: _TOPICS,
        Code.SEARCH_OFFSET: _TOPICS,
        Code.EARLIEST_TIME: _TOPICS,
        Code.LOCK_QUEUES: (*_OWN_GROUP, *_TOPICS),
        Code.UNLOCK_QUEUES: (*_OWN_GROUP, *_TOPICS),
        Code.SEND_BACK: _CONSUME,
        Code.ROUTE: _TOPICS,
        Code.CLUSTER: _NONE,
        Code.KEY_VALUE: _NONE,
        Code.DELETE_KEY_VALUE: _NONE,
        Code.UPDATE_TOPIC: (Operation.DECLARE_TOPIC,),
        Code.DELETE_TOPIC: (Operation.DELETE_TOPIC,),
        Code.DELETE_TOPIC_ROUTE: (Operation.DELETE_TOPIC,),
        Code.ALL_TOPICS: _TOPICS,
        Code.TOPICS_OF_CLUSTER: _TOPICS,
        Code.TOPIC_CONFIG: _TOPICS,
        Code.ALL_TOPIC_CONFIGS: _TOPICS,
        Code.TOPIC_STATS: _TOPICS,
        Code.UPDATE_GROUP: (Operation.DECLARE_GROUP,),
        Code.DELETE_GROUP: (Operation.DELETE_GROUP,),
        Code.GROUP_CONFIG: _GROUPS,
        Code.ALL_GROUP_CONFIGS: _GROUPS,
        Code.CONSUME_STATS: (*_GROUPS, *_TOPICS),
        Code.CONSUMER_CONNECTIONS: _GROUPS,
        Code.BROKER_RUNTIME: _TOPICS,
        Code.BROKER_SETTINGS: _NONE,
        Code.NAME_SERVER_SETTINGS: _NONE,
        Code.RATES: _TOPICS,
        Code.SYSTEM_TOPICS: _NONE,
        Code.SYSTEM_TOPICS_OF_BROKER: _NONE,
        Code.GROUPS_OF_TOPIC: (*_TOPICS, *_GROUPS),
        Code.TOPICS_OF_GROUP: _GROUPS,
        Code.SUBSCRIPTION_OF_GROUP: _GROUPS,
        Code.BROKER_CONSUME_STATS: (*_GROUPS, *_TOPICS),
        Code.PRODUCER_CONNECTIONS: _NONE,
        Code.ALL_PRODUCERS: _NONE,
        Code.RUNNING_INFO: _GROUPS,
        Code.CONSUME_DIRECTLY: (Operation.SETTLE_GROUP, Operation.CONSUME_GROUP),
        Code.RESET_PROGRESS: (*_TOPICS, Operation.RESET_GROUP),
        Code.COPY_PROGRESS: (*_TOPICS, Operation.DESCRIBE_GROUP, Operation.RESET_GROUP),
        Code.RECALL: (Operation.PUBLISH,),
        Code.VIEW_MESSAGE: (Operation.CONSUME_GROUP,),
        Code.QUERY_MESSAGE: (Operation.CONSUME_GROUP,),
        Code.RESUME_HALF: (Operation.DECIDE_HALF,),
    }
)
"""Every request that the broker carries out. One without operations reveals nothing, or concerns the client itself."""
