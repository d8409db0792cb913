"""The one table of handlers, put together from the tables of the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from escrowmq.wire.amqp010 import dtx, exchanges, messages, queues, tx
from escrowmq.wire.amqp010.codec.structs import Command
from escrowmq.wire.amqp010.operations import admitted
from escrowmq.wire.amqp010.ports import Handler

HANDLERS: Final[Mapping[type[Command], Handler]] = admitted(
    {**messages.HANDLERS, **exchanges.HANDLERS, **queues.HANDLERS, **tx.HANDLERS, **dtx.HANDLERS}
)
"""Handlers of the commands that a client may send, but for those of the class `execution`. A command without one is
refused with not-implemented.
"""
