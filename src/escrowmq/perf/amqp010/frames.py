"""Frames of AMQP 0-10 in both directions: whole controls and commands to send, and what the broker sends, decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from escrowmq.perf.errors import ClosedByBroker, PerfError
from escrowmq.wire.amqp010.codec.commands import decode_command, decode_control, encode_command, encode_control
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.frames import (
    BODY,
    COMMAND,
    CONTROL,
    FRAME_HEAD,
    HEAD_SIZE,
    HEADER,
    LEAST_FRAME_MAX,
    WHOLE,
    Assembly,
)
from escrowmq.wire.amqp010.codec.frames import assembly as frames_of
from escrowmq.wire.amqp010.codec.spec import (
    ConnectionClose,
    ExecutionException,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
)
from escrowmq.wire.amqp010.codec.structs import Command, Control

LARGEST: Final = 64 * 1024 * 1024
"""The largest segment that the tool takes from the broker, in bytes."""
_LIMITS: Final = (LARGEST, LARGEST, LARGEST, LARGEST)


class ReceivedAssembly(NamedTuple):
    """A control or a command of the broker, on a channel. A command may have a header and a body."""

    channel: int
    what: Control | Command
    header: bytes = b""
    body: bytes = b""


def control(channel: int, given: Control) -> bytes:
    """Return the frames of a control."""
    return b"".join(frames_of(channel, [(CONTROL, encode_control(given))], LEAST_FRAME_MAX))


def command(channel: int, given: Command, *, sync: bool = False) -> bytes:
    """Return the frames of a command without content. `sync` asks for its completion at once."""
    return b"".join(frames_of(channel, [(COMMAND, encode_command(given, sync=sync))], LEAST_FRAME_MAX))


def completed(channel: int, first: int, last: int) -> bytes:
    """Return session.completed for the broker's commands from number `first` to `last`."""
    return control(channel, SessionCompleted(((first, last),)))


def frame_size(data: bytes | bytearray, at: int) -> int:
    """Return the size of the frame at `at`. Raises PerfError if the bytes are not a frame."""
    flags, kind, size, track, _ = FRAME_HEAD.unpack_from(data, at)
    if size < HEAD_SIZE or flags > WHOLE or kind > BODY or track != (kind != CONTROL):
        raise PerfError("the broker sent bytes that are not AMQP 0-10 frames")
    return int(size)


class AssemblyReader:
    """Puts frames together. `on_received` gets each control and each command."""

    def __init__(self, on_received: Callable[[ReceivedAssembly], None]) -> None:
        self._on_received = on_received
        self._parts: dict[tuple[int, bool], Assembly] = {}  # incomplete controls and commands by channel

    def take(self, data: bytes | bytearray, at: int, end: int) -> int:
        """Take the frame at `at`. Returns its size, or 0 if it is incomplete. Raises PerfError if it is malformed."""
        if end - at < HEAD_SIZE:
            return 0
        size = frame_size(data, at)
        if end - at < size:
            return 0
        flags, kind, _, track, channel = FRAME_HEAD.unpack_from(data, at)
        payload = bytes(data[at + HEAD_SIZE : at + size])
        try:
            if flags == WHOLE and (channel, track == 0) not in self._parts:
                found = decode_control(payload) if kind == CONTROL else decode_command(payload)[0]
                self._on_received(ReceivedAssembly(channel, found))
            else:
                self._part(channel, flags, kind, payload)
        except CodecError as error:
            raise PerfError(f"the broker sent what cannot be decoded: {error}") from None
        return size

    def _part(self, channel: int, flags: int, kind: int, payload: bytes) -> None:
        key = channel, kind == CONTROL
        parts = self._parts.setdefault(key, Assembly(_LIMITS))
        if not parts.take(flags, kind, payload):
            return
        del self._parts[key]
        segments = parts.segments
        if kind == CONTROL:
            self._on_received(ReceivedAssembly(channel, decode_control(segments[CONTROL])))
        else:
            found = decode_command(segments[COMMAND])[0]
            self._on_received(ReceivedAssembly(channel, found, segments.get(HEADER, b""), segments.get(BODY, b"")))


def raise_if_ended(found: Control | Command) -> None:
    """Raise PerfError with the broker's reason if it closes the connection, or ends a session."""
    if isinstance(found, ConnectionClose):
        code = int(found.reply_code or 0)
        raise ClosedByBroker(f"the broker closed the connection: {code} {found.reply_text or ''}", code)
    if isinstance(found, ExecutionException):
        code = int(found.error_code or 0)
        raise ClosedByBroker(f"the broker ended the session: {code} {found.description or ''}", code)
    if isinstance(found, SessionDetach | SessionDetached):
        code = int(found.code or 0) if isinstance(found, SessionDetached) else 0
        raise ClosedByBroker(f"the broker detached the session, with code {code}", code)
