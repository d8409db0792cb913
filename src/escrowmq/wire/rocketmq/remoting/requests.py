"""The requests of classic clients, by code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from escrowmq.wire.rocketmq.remoting import administration, consuming, routing
from escrowmq.wire.rocketmq.remoting.codes import Code
from escrowmq.wire.rocketmq.remoting.producing import end_transaction
from escrowmq.wire.rocketmq.remoting.pulling import pull
from escrowmq.wire.rocketmq.remoting.sending import send

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command
    from escrowmq.wire.rocketmq.remoting.reply import HandlerReply

Handler: TypeAlias = "Callable[[RemotingConnection, Command], HandlerReply | None]"
"""Carries a request out. None means that the response comes later. Raises RequestFault and BrokerError."""

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        Code.SEND: send,
        Code.SEND_V2: send,
        Code.SEND_BATCH: send,
        Code.END_TRANSACTION: end_transaction,
        Code.PULL: pull,
        Code.LITE_PULL: pull,
        Code.HEARTBEAT: consuming.heartbeat,
        Code.UNREGISTER: consuming.unregister,
        Code.CONSUMERS_OF_GROUP: consuming.consumers_of_group,
        Code.CHECK_CLIENT: consuming.check_client,
        Code.QUERY_OFFSET: consuming.query_offset,
        Code.UPDATE_OFFSET: consuming.update_offset,
        Code.MAX_OFFSET: consuming.max_offset,
        Code.MIN_OFFSET: consuming.min_offset,
        Code.SEARCH_OFFSET: consuming.search_offset,
        Code.EARLIEST_TIME: consuming.earliest_time,
        Code.LOCK_QUEUES: consuming.lock_queues,
        Code.UNLOCK_QUEUES: consuming.unlock_queues,
        Code.SEND_BACK: consuming.send_back,
        Code.ROUTE: routing.route,
        Code.CLUSTER: routing.cluster,
        Code.KEY_VALUE: routing.key_value,
        Code.UPDATE_TOPIC: administration.update_topic,
        Code.DELETE_TOPIC: administration.delete_topic,
        Code.DELETE_TOPIC_ROUTE: administration.delete_topic,
        Code.ALL_TOPICS: administration.all_topics,
        Code.TOPICS_OF_CLUSTER: administration.topics_of_cluster,
        Code.TOPIC_CONFIG: administration.topic_config,
        Code.ALL_TOPIC_CONFIGS: administration.all_topic_configs,
        Code.TOPIC_STATS: administration.topic_stats,
        Code.UPDATE_GROUP: administration.update_group,
        Code.DELETE_GROUP: administration.delete_group,
        Code.GROUP_CONFIG: administration.group_config,
        Code.ALL_GROUP_CONFIGS: administration.all_group_configs,
        Code.CONSUME_STATS: administration.consume_stats,
        Code.CONSUMER_CONNECTIONS: administration.consumer_connections,
        Code.BROKER_RUNTIME: administration.broker_runtime,
        Code.VIEW_MESSAGE: administration.view_message,
    }
)
