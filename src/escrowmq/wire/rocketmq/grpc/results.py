"""The answer to a send of one message, written without objects for its parts."""

from __future__ import annotations

from typing import Final

from escrowmq.wire.rocketmq.grpc.answers import ok
from escrowmq.wire.rocketmq.proto.service_pb2 import SendMessageResponse, SendResultEntry

_HEAD: Final = SendMessageResponse(status=ok()).SerializeToString()
_ENTRY: Final = SendResultEntry(status=ok()).SerializeToString()
_ENTRIES_TAG: Final = SendMessageResponse.ENTRIES_FIELD_NUMBER << 3 | 2
_ID_TAG: Final = bytes((SendResultEntry.MESSAGE_ID_FIELD_NUMBER << 3 | 2,))
_TRANSACTION_TAG: Final = bytes((SendResultEntry.TRANSACTION_ID_FIELD_NUMBER << 3 | 2,))
_OFFSET_TAG: Final = bytes((SendResultEntry.OFFSET_FIELD_NUMBER << 3,))


def sent_one(message_id: str, offset: int) -> bytes:
    """Return the answer for a message that was stored at an offset, encoded. Clients expect the message's id as that of
    the transaction, too.
    """
    ident = message_id.encode()
    length = varint(len(ident))
    entry = b"".join((_ENTRY, _ID_TAG, length, ident, _TRANSACTION_TAG, length, ident))
    if offset:
        entry += _OFFSET_TAG + varint(offset)
    return b"%b%c%b%b" % (_HEAD, _ENTRIES_TAG, varint(len(entry)), entry)


def varint(value: int) -> bytes:
    """Return a number, which is not negative, as protocol buffers write it."""
    if value < 0x80:
        return bytes((value,))
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
