"""Frames of AMQP 0-10, and the segments and assemblies that are made of them.

A frame begins with twelve octets: flags, the segment's type, the frame's size, a reserved octet, the track, the
channel, and four reserved octets. A control is an assembly of one segment on track 0. A command is one on track 1, and
message.transfer may have two more segments, for the message's header and its body.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from escrowmq.wire.amqp010.codec.commands import encode_control
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.structs import Control

PROTOCOL_HEADER: Final = b"AMQP\x01\x01\x00\x0a"
FRAME_HEAD: Final = struct.Struct(">BBHxBH4x")
"""Flags, type, size, track, channel."""
HEAD_SIZE: Final = FRAME_HEAD.size
LEAST_FRAME_MAX: Final = 4096
"""MIN-MAX-FRAME-SIZE: a peer may always send frames of this size."""
MOST_FRAME_MAX: Final = 65_535

FIRST_SEGMENT, LAST_SEGMENT, FIRST_FRAME, LAST_FRAME = 8, 4, 2, 1
WHOLE: Final = 15
"""The flags of a frame that is an assembly of its own."""
VERSION: Final = 0xC0
"""The bits of the flags that have the version of the frame's format, which is 0."""
CONTROL, COMMAND, HEADER, BODY = range(4)
"""Types of segments. Track 0 has controls only, and track 1 the others."""

_PART: Final = 64
"""The octets that a part of a segment needs besides its payload, about."""

Segment: TypeAlias = tuple[int, bytes | memoryview]
"""Type and payload."""


def control_frame(channel: int, control: Control, frame_max: int = LEAST_FRAME_MAX) -> bytes:
    """Return the frames of a control, most often only one."""
    return b"".join(assembly(channel, [(CONTROL, encode_control(control))], frame_max))


def assembly(channel: int, segments: list[Segment], frame_max: int) -> list[bytes | memoryview]:
    """Return the frames of a control or a command with its content, as alternating heads and payloads.

    No frame is longer than `frame_max` octets. A long payload is cut without a copy if it is a memoryview.
    """
    track = 0 if segments[0][0] == CONTROL else 1
    most, last = frame_max - HEAD_SIZE, len(segments) - 1
    pieces: list[bytes | memoryview] = []
    for number, (kind, payload) in enumerate(segments):
        of_segment = (FIRST_SEGMENT if not number else 0) | (LAST_SEGMENT if number == last else 0)
        size = len(payload)
        if size <= most:
            pieces += (FRAME_HEAD.pack(of_segment | 3, kind, size + HEAD_SIZE, track, channel), payload)
            continue
        for at in range(0, size, most):
            part = payload[at : at + most]
            flags = of_segment | (FIRST_FRAME if not at else 0) | (LAST_FRAME if at + most >= size else 0)
            pieces += (FRAME_HEAD.pack(flags, kind, len(part) + HEAD_SIZE, track, channel), part)
    return pieces


class Assembly:
    """The segments of one track of a channel, while their frames arrive.

    `limits` has the longest payload of each type of segment. What is longer is counted, but not kept.
    """

    __slots__ = ("_flags", "_kind", "_limits", "_parts", "_size", "excess", "held_bytes", "segments")

    def __init__(self, limits: tuple[int, int, int, int]) -> None:
        self._limits = limits
        self._kind = -1  # of the last segment that began
        self._flags = LAST_FRAME  # of the last frame
        self._parts: list[bytes] = []
        self._size = 0  # of the segment that is incomplete
        self.segments: dict[int, bytes] = {}
        """Complete segments by type. One that is too long is empty."""
        self.held_bytes = 0
        """The octets that are kept, about."""
        self.excess = -1
        """The type of the first segment that is too long; -1 if none is."""

    def take(self, flags: int, kind: int, payload: bytes) -> bool:
        """Take a frame. Return whether the assembly is complete. Raises CodecError for a frame that does not fit."""
        self._check(flags, kind)
        self._flags = flags
        if flags & FIRST_FRAME:
            self._kind = kind
            self._size = 0
        self._size += len(payload)
        if self._size > self._limits[kind]:
            if self.excess < 0:
                self.excess = kind
            self.held_bytes -= sum(map(len, self._parts)) + _PART * len(self._parts)
            self._parts.clear()
            if flags & LAST_FRAME:
                self._parts.append(b"")
        elif payload or flags & LAST_FRAME:
            self._parts.append(payload)
            self.held_bytes += len(payload) + _PART
        if not flags & LAST_FRAME:
            return False
        parts, self._parts = self._parts, []
        self.segments[kind] = parts[0] if len(parts) == 1 else b"".join(parts)
        return flags & LAST_SEGMENT != 0

    def _check(self, flags: int, kind: int) -> None:
        before = self._flags
        if not before & LAST_FRAME:
            if flags & FIRST_FRAME or kind != self._kind or (flags ^ before) & (FIRST_SEGMENT | LAST_SEGMENT):
                raise CodecError("a segment is not complete when another one begins")
        elif not flags & FIRST_FRAME:
            raise CodecError("a frame continues a segment that has not begun")
        elif flags & FIRST_SEGMENT:
            if self._kind >= 0:
                raise CodecError("an assembly is not complete when another one begins")
            if kind not in (CONTROL, COMMAND):
                raise CodecError(f"an assembly begins with a segment of type {kind}")
        elif self._kind < 0 or kind <= self._kind:
            raise CodecError(f"a segment of type {kind} is not expected")
