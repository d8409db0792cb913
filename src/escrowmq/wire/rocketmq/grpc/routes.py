"""QueryRoute and QueryAssignment: the queues of a topic, all in this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.wire.rocketmq.grpc.answers import ok
from escrowmq.wire.rocketmq.grpc.kinds import accepted_types
from escrowmq.wire.rocketmq.proto.definition_pb2 import Assignment, Broker, MessageQueue, Permission, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)

if TYPE_CHECKING:
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession
    from escrowmq.wire.rocketmq.proto.definition_pb2 import Endpoints

ANY_QUEUE = -1
"""The queue of an assignment to a group that shares all queues of the broker."""


def query_route(session: GrpcSession, call: Call, request: QueryRouteRequest) -> None:
    """Answer with the queues of a topic. The broker's address is the one that the client used."""
    topic = session.topic(request.topic)
    broker = _broker(session, request.endpoints)
    queues = [_queue(topic, request.topic, number, broker) for number in range(len(topic.streams))]
    call.answer(QueryRouteResponse(status=ok(), message_queues=queues))


def query_assignment(session: GrpcSession, call: Call, request: QueryAssignmentRequest) -> None:
    """Answer with the queues that a push consumer polls: each queue of a FIFO group, else one that stands for all."""
    topic = session.topic(request.topic)
    name = session.group(request.group)
    broker = _broker(session, request.endpoints)
    numbers = range(len(topic.streams)) if session.is_fifo(name) else (ANY_QUEUE,)
    assignments = [Assignment(message_queue=_queue(topic, request.topic, number, broker)) for number in numbers]
    call.answer(QueryAssignmentResponse(status=ok(), assignments=assignments))


def _broker(session: GrpcSession, endpoints: Endpoints) -> Broker:
    return Broker(name=session.options.broker_name, id=0, endpoints=endpoints)


def _queue(topic: Topic, resource: Resource, number: int, broker: Broker) -> MessageQueue:
    return MessageQueue(
        topic=resource,
        id=number,
        permission=Permission.READ_WRITE,
        broker=broker,
        accept_message_types=accepted_types(topic.message_type),
    )
