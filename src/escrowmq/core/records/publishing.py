"""The PUBLISH record: a run of messages, and the queues to which it was routed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import BLOCK
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Target

_U32: Final = struct.Struct("<I")
_TARGET: Final = struct.Struct("<IQ")  # queue id, first position
_TOGETHER: Final = 64
_TARGETS: Final = struct.Struct("<" + _TOGETHER * _TARGET.format[1:])
_SINGLE: Final = struct.Struct("<IIQIQII")  # one target, then the head of its block
_SINGLE_BLOCK: Final = 4 + _TARGET.size  # offset of its block
_LONE: Final = struct.Struct("<QIBI")  # head of a commit of one operation, head of the operation
_LONE_SINGLE: Final = struct.Struct(_LONE.format + _SINGLE.format[1:])
_PUBLISH: Final = int(Kind.PUBLISH)


class Publish(NamedTuple):
    """A run on its queues. `block` is the offset of its block within the record, `length` the number of messages."""

    targets: list[Target]
    block: int
    length: int


def encode_targets(targets: Sequence[tuple[int, int]]) -> bytes:
    """Return the part of a PUBLISH record that precedes the block."""
    if len(targets) == 1:
        return b"\x01\x00\x00\x00" + _TARGET.pack(*targets[0])
    whole = len(targets) - len(targets) % _TOGETHER
    parts = [_TARGETS.pack(*chain.from_iterable(targets[at : at + _TOGETHER])) for at in range(0, whole, _TOGETHER)]
    parts += [_TARGET.pack(*target) for target in targets[whole:]]
    return _U32.pack(len(targets)) + b"".join(parts)


def encode_single(
    queue: int, position: int, time: int, envelope: Envelope, content: bytes, branch: int = 0
) -> tuple[tuple[bytes, ...], int]:
    """Return one message on one queue as the parts of a PUBLISH record, and the offset of its block.

    With `branch`, the record is a COMMIT that contains nothing else. The result equals that of `encode_targets` and
    `encode_block` (and `encode_lone`), in one step.
    """
    head, size = envelope.encode(), len(content)
    rest = 20 + len(head) + size
    if branch:
        length = _SINGLE_BLOCK + 4 + rest
        fixed = _LONE_SINGLE.pack(branch, 1, _PUBLISH, length, 1, queue, position, rest, time, 1, len(head))
        return (fixed, head, _U32.pack(size), content), _LONE.size + _SINGLE_BLOCK
    fixed = _SINGLE.pack(1, queue, position, rest, time, 1, len(head))
    return (fixed, head, _U32.pack(size), content), _SINGLE_BLOCK


def decode_publish(data: bytes | memoryview) -> Publish:
    (number,) = _U32.unpack_from(data)
    at = 4 + number * _TARGET.size
    targets = [Target(*_TARGET.unpack_from(data, 4 + i * _TARGET.size)) for i in range(number)]
    return Publish(targets, at, BLOCK.unpack_from(data, at)[2])
