"""The requests of classic clients, by code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from escrowmq.wire.rocketmq.remoting import consuming, routing
from escrowmq.wire.rocketmq.remoting.administration import (
    figures,
    groups,
    members,
    progress,
    queries,
    topic_settings,
    topics,
)
from escrowmq.wire.rocketmq.remoting.codes import Code
from escrowmq.wire.rocketmq.remoting.producing import end_transaction
from escrowmq.wire.rocketmq.remoting.pulling import pull
from escrowmq.wire.rocketmq.remoting.recalling import recall_message
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
        Code.DELETE_KEY_VALUE: routing.delete_key_value,
        Code.UPDATE_TOPIC: topic_settings.update_topic,
        Code.DELETE_TOPIC: topics.delete_topic,
        Code.DELETE_TOPIC_ROUTE: topics.delete_topic,
        Code.ALL_TOPICS: topics.all_topics,
        Code.TOPICS_OF_CLUSTER: topics.topics_of_cluster,
        Code.TOPIC_CONFIG: topics.topic_config,
        Code.ALL_TOPIC_CONFIGS: topics.all_topic_configs,
        Code.TOPIC_STATS: topics.topic_stats,
        Code.UPDATE_GROUP: groups.update_group,
        Code.DELETE_GROUP: groups.delete_group,
        Code.GROUP_CONFIG: groups.group_config,
        Code.ALL_GROUP_CONFIGS: groups.all_group_configs,
        Code.CONSUME_STATS: progress.consume_stats,
        Code.CONSUMER_CONNECTIONS: members.consumer_connections,
        Code.BROKER_RUNTIME: figures.broker_runtime,
        Code.BROKER_SETTINGS: figures.broker_settings,
        Code.NAME_SERVER_SETTINGS: figures.name_server_settings,
        Code.RATES: figures.topic_rates,
        Code.SYSTEM_TOPICS: topics.system_topics,
        Code.SYSTEM_TOPICS_OF_BROKER: topics.system_topics,
        Code.GROUPS_OF_TOPIC: topics.groups_of_topic,
        Code.TOPICS_OF_GROUP: members.topics_of_group,
        Code.SUBSCRIPTION_OF_GROUP: members.subscription_of_group,
        Code.BROKER_CONSUME_STATS: progress.broker_consume_stats,
        Code.PRODUCER_CONNECTIONS: members.producer_connections,
        Code.ALL_PRODUCERS: members.all_producers,
        Code.RUNNING_INFO: members.running_info,
        Code.CONSUME_DIRECTLY: members.consume_directly,
        Code.RESET_PROGRESS: progress.reset_progress,
        Code.COPY_PROGRESS: progress.copy_progress,
        Code.RECALL: recall_message,
        Code.VIEW_MESSAGE: queries.view_message,
        Code.QUERY_MESSAGE: queries.query_message,
        Code.RESUME_HALF: queries.resume_half,
    }
)
