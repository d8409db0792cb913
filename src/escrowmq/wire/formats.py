"""The table of formats: how the content of stored messages is read, by the protocol that they arrived over."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp091.formats import KeyedFormat, PackedFormat, PlainFormat
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED
from escrowmq.wire.amqp091.publication import PROTOCOL as PLAIN
from escrowmq.wire.amqp10.formats import SectionsFormat
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS

if TYPE_CHECKING:
    from escrowmq.core.messages.formats import Format

FORMATS: Final[Mapping[int, Format]] = MappingProxyType(
    {PLAIN: PlainFormat(), PACKED: PackedFormat(), KEYED: KeyedFormat(), SECTIONS: SectionsFormat()}
)
"""By `Envelope.protocol`. The broker needs all of them from its start, because messages may expire into headers
exchanges before any client connects.
"""
