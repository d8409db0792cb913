"""The table of handlers."""

from __future__ import annotations

from escrowmq.wire.amqp010.codec.spec import COMMANDS
from escrowmq.wire.amqp010.execution import OWN
from escrowmq.wire.amqp010.handlers import HANDLERS


def test_each_command_has_one_handler() -> None:
    assert not HANDLERS.keys() & OWN.keys()
    assert {*HANDLERS, *OWN} == {*COMMANDS.values()}
