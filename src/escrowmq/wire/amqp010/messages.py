"""The class message: the handlers of its commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010.codec import spec
from escrowmq.wire.amqp010.credit import message_flow, message_flush, message_set_flow_mode, message_stop
from escrowmq.wire.amqp010.settling import message_accept, message_acquire, message_reject, message_release
from escrowmq.wire.amqp010.subscriptions import message_cancel, message_subscribe
from escrowmq.wire.amqp010.transfers import message_transfer

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.structs import Command
    from escrowmq.wire.amqp010.ports import Content, Handler, Outcome, SessionPort


def message_resume(session: SessionPort, command: spec.MessageResume, _: Content | None) -> Outcome:
    """Refuse to resume a transfer: none can be interrupted, since messages are not divided into fragments."""
    del session, command
    raise BrokerError(Condition.NOT_IMPLEMENTED, "transfers cannot be resumed")


HANDLERS: Final[Mapping[type[Command], Handler]] = MappingProxyType(
    {
        spec.MessageTransfer: message_transfer,
        spec.MessageAccept: message_accept,
        spec.MessageReject: message_reject,
        spec.MessageRelease: message_release,
        spec.MessageAcquire: message_acquire,
        spec.MessageResume: message_resume,
        spec.MessageSubscribe: message_subscribe,
        spec.MessageCancel: message_cancel,
        spec.MessageSetFlowMode: message_set_flow_mode,
        spec.MessageFlow: message_flow,
        spec.MessageFlush: message_flush,
        spec.MessageStop: message_stop,
    }
)
