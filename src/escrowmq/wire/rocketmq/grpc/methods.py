"""The methods of the service, with the operations that each may ask for (SEC-1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from escrowmq.core.access.table import Operation
from escrowmq.wire.rocketmq.grpc.clients import heartbeat, notify_client_termination, telemetry
from escrowmq.wire.rocketmq.grpc.gathering import GatheredCalls
from escrowmq.wire.rocketmq.grpc.positions import get_offset, query_offset, update_offset
from escrowmq.wire.rocketmq.grpc.publishing import send_message
from escrowmq.wire.rocketmq.grpc.recalling import recall_message
from escrowmq.wire.rocketmq.grpc.receiving import receive_message
from escrowmq.wire.rocketmq.grpc.routes import query_assignment, query_route
from escrowmq.wire.rocketmq.grpc.settling import ack_message, change_invisible_duration, forward_to_dead_letter_queue
from escrowmq.wire.rocketmq.grpc.transactions import end_transaction
from escrowmq.wire.rocketmq.proto import service_pb2 as messages

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession

SERVICE: Final = b"/apache.rocketmq.v2.MessagingService/"


class UnaryMethod(NamedTuple):
    """A method: the messages that it takes and returns, its function, and the operations of its function.

    The function of a method that takes a stream of requests gets the call before any of them.
    """

    request: Any
    response: Any
    handle: Callable[[GrpcSession, Call, Any], None]
    operations: tuple[Operation, ...]
    gather: Callable[[GatheredCalls, Call, Any], bool] | None = None
    """Takes a call that can be carried out with others, or returns False."""


class StreamMethod(NamedTuple):
    """A method that takes a stream of requests."""

    request: Any
    open: Callable[[GrpcSession, Call], None]
    operations: tuple[Operation, ...]


_PUBLISH: Final = (Operation.PUBLISH, Operation.STORE_HALF)
_SETTLE: Final = (Operation.SETTLE_GROUP,)

METHODS: Final[Mapping[bytes, UnaryMethod | StreamMethod]] = MappingProxyType(
    {
        SERVICE + b"QueryRoute": UnaryMethod(
            messages.QueryRouteRequest, messages.QueryRouteResponse, query_route, (Operation.DESCRIBE_TOPIC,)
        ),
        SERVICE + b"QueryAssignment": UnaryMethod(
            messages.QueryAssignmentRequest,
            messages.QueryAssignmentResponse,
            query_assignment,
            (Operation.DESCRIBE_TOPIC,),
        ),
        SERVICE + b"Heartbeat": UnaryMethod(messages.HeartbeatRequest, messages.HeartbeatResponse, heartbeat, ()),
        SERVICE + b"Telemetry": StreamMethod(messages.TelemetryCommand, telemetry, ()),
        SERVICE + b"NotifyClientTermination": UnaryMethod(
            messages.NotifyClientTerminationRequest,
            messages.NotifyClientTerminationResponse,
            notify_client_termination,
            (),
        ),
        SERVICE + b"SendMessage": UnaryMethod(
            messages.SendMessageRequest, messages.SendMessageResponse, send_message, _PUBLISH, GatheredCalls.send
        ),
        SERVICE + b"EndTransaction": UnaryMethod(
            messages.EndTransactionRequest,
            messages.EndTransactionResponse,
            end_transaction,
            (Operation.DECIDE_HALF,),
            GatheredCalls.end,
        ),
        SERVICE + b"ReceiveMessage": UnaryMethod(
            messages.ReceiveMessageRequest,
            messages.ReceiveMessageResponse,
            receive_message,
            (Operation.CONSUME_GROUP, Operation.DECLARE_GROUP),
        ),
        SERVICE + b"AckMessage": UnaryMethod(
            messages.AckMessageRequest, messages.AckMessageResponse, ack_message, _SETTLE
        ),
        SERVICE + b"ChangeInvisibleDuration": UnaryMethod(
            messages.ChangeInvisibleDurationRequest,
            messages.ChangeInvisibleDurationResponse,
            change_invisible_duration,
            _SETTLE,
        ),
        SERVICE + b"ForwardMessageToDeadLetterQueue": UnaryMethod(
            messages.ForwardMessageToDeadLetterQueueRequest,
            messages.ForwardMessageToDeadLetterQueueResponse,
            forward_to_dead_letter_queue,
            _SETTLE,
        ),
        SERVICE + b"GetOffset": UnaryMethod(
            messages.GetOffsetRequest, messages.GetOffsetResponse, get_offset, (Operation.DESCRIBE_GROUP,)
        ),
        SERVICE + b"UpdateOffset": UnaryMethod(
            messages.UpdateOffsetRequest,
            messages.UpdateOffsetResponse,
            update_offset,
            (Operation.CONSUME_GROUP, Operation.DECLARE_GROUP),
        ),
        SERVICE + b"QueryOffset": UnaryMethod(
            messages.QueryOffsetRequest, messages.QueryOffsetResponse, query_offset, (Operation.DESCRIBE_TOPIC,)
        ),
        SERVICE + b"RecallMessage": UnaryMethod(
            messages.RecallMessageRequest, messages.RecallMessageResponse, recall_message, (Operation.PUBLISH,)
        ),
    }
)
"""By path. A path that is not in the table is refused."""
