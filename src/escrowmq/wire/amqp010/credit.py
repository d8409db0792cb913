"""The credit of subscriptions: message.set-flow-mode, flow, flush and stop.

The table of `core/queues/credit.py` says what restores credit in each mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.credit import UNLIMITED, Replenishment
from escrowmq.wire.amqp010.codec.spec import CreditUnit, FlowMode
from escrowmq.wire.amqp010.ports import LATER
from escrowmq.wire.amqp010.subscriptions import Subscriptions

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.spec import MessageFlow, MessageFlush, MessageSetFlowMode, MessageStop
    from escrowmq.wire.amqp010.ports import Content, Outcome, SessionPort

INFINITE: Final = 0xFFFFFFFF
"""The value of message.flow that ends the limit."""
MOST_FLUSHES: Final = 100
"""The most commands message.flush of a session that may be incomplete. Other commands complete between them, so each of
them is a gap in what the broker reports.
"""


def message_set_flow_mode(session: SessionPort, command: MessageSetFlowMode, _: Content | None) -> None:
    """Choose the event that restores credit. The mode may change only while the credit is zero (mode-switching)."""
    subscription = session.part(Subscriptions).named(command.destination)
    if command.flow_mode not in (None, FlowMode.CREDIT, FlowMode.WINDOW):
        raise BrokerError(Condition.INVALID_ARGUMENT, f"there is no flow-mode {command.flow_mode}")
    by = Replenishment.COMPLETION if command.flow_mode == FlowMode.WINDOW else Replenishment.RECEIVER
    consumer = subscription.consumer
    if by is subscription.by:
        return
    if consumer.credit.left > 0 or consumer.byte_credit is None or consumer.byte_credit.left > 0:
        raise BrokerError(
            Condition.ILLEGAL_STATE, f"the subscription '{subscription.destination}' has credit; stop it first"
        )
    consumer.credit.cancel()
    consumer.credit.by = by
    subscription.stop()


def message_flow(session: SessionPort, command: MessageFlow, _: Content | None) -> None:
    """Add to the credit in messages or in bytes."""
    subscription = session.part(Subscriptions).named(command.destination)
    consumer, value = subscription.consumer, command.value or 0
    if command.unit not in (None, CreditUnit.MESSAGE, CreditUnit.BYTE):
        raise BrokerError(Condition.INVALID_ARGUMENT, f"there is no unit of credit {command.unit}")
    if command.unit == CreditUnit.BYTE:
        if value == INFINITE:
            consumer.weigh(None)
        elif consumer.byte_credit is not None:
            consumer.byte_credit.grant(value)
            consumer.wake()
    elif value == INFINITE:
        subscription.limited = False
        consumer.allow(UNLIMITED)
    else:
        consumer.grant(value)


def message_flush(session: SessionPort, command: MessageFlush, _: Content | None) -> Outcome:
    """Use up the credit with what is ready, and cancel the rest. The command is completed after that."""
    subscriptions = session.part(Subscriptions)
    subscription = subscriptions.named(command.destination)
    if subscriptions.flushing >= MOST_FLUSHES:
        raise BrokerError(Condition.LIMIT_EXCEEDED, f"{MOST_FLUSHES} commands message.flush are not complete")
    subscriptions.flushing += 1
    subscription.flushes.append(session.current)
    subscription.consumer.drain()
    return LATER


def message_stop(session: SessionPort, command: MessageStop, _: Content | None) -> None:
    """Cancel the credit. Nothing more is sent until the client grants some."""
    subscriptions = session.part(Subscriptions)
    subscription = subscriptions.named(command.destination)
    subscription.stop()
    subscriptions.answer_flushes(subscription)
