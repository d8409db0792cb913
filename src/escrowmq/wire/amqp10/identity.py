"""The property user-id in runs of messages. `publication.py` checks whether the user itself claims it."""

from __future__ import annotations

from typing import Final

from escrowmq.wire.amqp10.codec.sections import claims_user

_PROPERTIES: Final = b"\x00\x53\x73\xc0"
_BODIES: Final = frozenset((0x74, 0x75, 0x76, 0x77))
_NULL: Final = 0x40
_LIST: Final = 0xC0
_AT_LIST: Final = 3  # the place of that code; no user-id has it
# Bytes of a message-id, by its code: ulong in three forms, uuid, and null. Those of texts and binaries follow the code.
_FIXED: Final = {0x40: 1, 0x44: 1, 0x53: 2, 0x80: 9, 0x98: 17}
_LENGTH_FOLLOWS: Final = frozenset((0xA0, 0xA1))
_MOST_KINDS: Final = 64


def unclaimed(contents: list[bytes]) -> int:
    """Return how many of `contents`, from the first one on, surely have no user-id. It takes a fraction of the time of
    a look at each of them.
    """
    if _nothing_is_claimed(contents):
        return len(contents)
    return next((i for i, content in enumerate(contents) if claims_user(content, 0, len(content))), len(contents))


def _nothing_is_claimed(contents: list[bytes]) -> bool:
    """Return whether it is certain, after a few bytes of each message, that none of them has a user-id."""
    heads = {content[:4] for content in contents}
    if heads != {_PROPERTIES}:
        return all(len(head) == 4 and head[:2] == b"\x00\x53" and head[2] in _BODIES for head in heads)
    # The count of fields, and code and length of the message-id, say where the user-id is.
    kinds = {content[5:8] for content in contents}
    places = {kind: _place(kind) for kind in kinds}
    if len(kinds) > _MOST_KINDS or not all(places.values()):
        return False
    try:
        return {content[places[content[5:8]]] for content in contents} <= {_NULL, _LIST}
    except IndexError:
        return False


def _place(kind: bytes) -> int:
    """Return the place of the user-id in messages of this kind; 0 if it cannot be told."""
    if len(kind) < 3:
        return 0
    count, code, length = kind
    if count < 2:
        return _AT_LIST
    if code in _LENGTH_FOLLOWS:
        return 8 + length
    return 6 + _FIXED[code] if code in _FIXED else 0
