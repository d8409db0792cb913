"""The table of formats: how the content of stored messages is read, by the protocol that they arrived over."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp010.codec.errors import CodecError as TransferFault
from escrowmq.wire.amqp010.content import PROTOCOL as TRANSFERS
from escrowmq.wire.amqp010.formats import TransferFormat
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.formats import KeyedFormat, PackedFormat, PlainFormat
from escrowmq.wire.amqp091.ids import FORMS as AMQP091_FORMS
from escrowmq.wire.amqp091.ids import ids_of_each as amqp091_ids
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED
from escrowmq.wire.amqp091.publication import PROTOCOL as PLAIN
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.formats import SectionsFormat
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ
from escrowmq.wire.rocketmq.formats import RocketMQFormat

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.wire.neutral import Id, Translator

FORMATS: Final[Mapping[int, Translator]] = MappingProxyType(
    {
        PLAIN: PlainFormat(),
        PACKED: PackedFormat(),
        KEYED: KeyedFormat(),
        SECTIONS: SectionsFormat(),
        TRANSFERS: TransferFormat(),
        ROCKETMQ: RocketMQFormat(),
    }
)
"""By `Envelope.protocol`. The broker needs all of them from its start, because messages may expire into headers
exchanges before any client connects.
"""

MALFORMED: Final = (SyntaxFault, CodecError, TransferFault, ValueError, LookupError, struct.error)
"""What a format raises for content that no endpoint has stored, such as that of a changed journal."""


def ids_of_each(envelope: Envelope, contents: Sequence[bytes]) -> list[tuple[Id | None, Id | None]]:
    """Return the message id and the correlation id of each message. Damaged ones, and those of an unknown form, have
    none.
    """
    found = FORMATS.get(envelope.protocol)
    if found is None:
        return [(None, None)] * len(contents)
    quick = amqp091_ids(envelope, contents) if envelope.protocol in AMQP091_FORMS else [None] * len(contents)
    ids: list[tuple[Id | None, Id | None]] = []
    for content, known in zip(contents, quick, strict=True):
        if known is not None:
            ids.append(known)
            continue
        try:
            message = found.neutral(envelope, content)
        except MALFORMED:
            ids.append((None, None))
        else:
            ids.append((message.message_id, message.correlation_id))
    return ids


_KEPT_BYTES: Final = 8 * 1024 * 1024
_MESSAGE_BYTES: Final = 64 * 1024
_COST: Final = 1024  # of a translated message, in addition to its content before and after


class Translations:
    """Messages in the form of another protocol. A message for many consumers is translated once.

    Translations of messages of at most 64 KiB are kept, up to 8 MiB.
    """

    __slots__ = ("_found", "_size")

    def __init__(self) -> None:
        self._found: dict[tuple[Envelope, bytes, int], tuple[Envelope, bytes]] = {}
        self._size = 0

    def find(self, envelope: Envelope, content: bytes, protocol: int) -> tuple[Envelope, bytes]:
        """Return a message in the form with the number `protocol`."""
        key = (envelope, content, protocol)
        found = self._found.get(key)
        if found is None:
            found = FORMATS[protocol].encode(FORMATS[envelope.protocol].neutral(envelope, content))
            if len(content) <= _MESSAGE_BYTES:
                self._size += len(content) + len(found[1]) + len(found[0].header) + _COST
                if self._size > _KEPT_BYTES:
                    self._found.clear()
                    self._size = len(content) + len(found[1]) + len(found[0].header) + _COST
                self._found[key] = found
        return found


_translations: Final = Translations()


def translated(envelope: Envelope, content: bytes, protocol: int) -> tuple[Envelope, bytes]:
    """Return a message in the form with the number `protocol`, which is not that of `envelope`."""
    return _translations.find(envelope, content, protocol)
