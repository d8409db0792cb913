"""The types of messages and topics: their names in the core, and their numbers in this protocol."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, MessageType
from escrowmq.wire.rocketmq.topics import takes, type_fault

TYPES: Final[Mapping[str, MessageType]] = MappingProxyType(
    {
        "normal": MessageType.NORMAL,
        "fifo": MessageType.FIFO,
        "delay": MessageType.DELAY,
        "transaction": MessageType.TRANSACTION,
    }
)
NAMES: Final[Mapping[int, str]] = MappingProxyType({number: name for name, number in TYPES.items()})


def accepted_types(of_topic: str) -> list[MessageType]:
    """Return the types of messages that a topic accepts."""
    return [number for name, number in TYPES.items() if takes(of_topic, name)]


def check_type(of_topic: str, of_message: str) -> None:
    """Raises RocketmqRefusal unless a topic takes messages of the other type (HALF-7). The text is the proxy's."""
    fault = type_fault(of_topic, of_message)
    if fault:
        raise RocketmqRefusal(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, fault)
