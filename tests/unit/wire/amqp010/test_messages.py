"""The table of the class message."""

from __future__ import annotations

from escrowmq.wire.amqp010.codec import spec
from escrowmq.wire.amqp010.codec.spec import ErrorCode, MessageResume
from escrowmq.wire.amqp010.messages import HANDLERS
from tests.unit.wire.amqp010.clients import Client


def test_every_command_of_the_class_has_a_handler() -> None:
    assert set(HANDLERS) == {kind for code, kind in spec.COMMANDS.items() if code >> 8 == 0x04}


def test_no_transfer_can_be_resumed() -> None:
    Client().refused(MessageResume("d", "r"), ErrorCode.NOT_IMPLEMENTED)
