"""The two frames that answer most commands, whose fields are packed and unpacked at once: `session.completed` with one
range of commands, and `execution.result` with an XA status. All others are left to the general encoding.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from escrowmq.wire.amqp010.codec.frames import COMMAND, CONTROL, WHOLE
from escrowmq.wire.amqp010.codec.spec import ExecutionResult, SessionCompleted, XaResult

_COMPLETED: Final = Struct(">BBHxBH4x4sHII")
_COMPLETED_FIELDS: Final = SessionCompleted.CODE.to_bytes(2, "big") + b"\x01\x00"
_ONE_RANGE: Final = 8
_RESULT: Final = Struct(">BBHxBH4x2sBB2sI8sH")
_RESULT_CODE: Final = ExecutionResult.CODE.to_bytes(2, "big")
_RESULT_FIELDS: Final = b"\x03\x00"
_XA_STATUS: Final = b"\x00\x00\x00\x06" + XaResult.CODE.to_bytes(2, "big") + b"\x01\x00"

COMPLETED_SIZE: Final = _COMPLETED.size
"""The size of a frame of `completed_frame`."""
RESULT_SIZE: Final = _RESULT.size
"""The size of a frame of `result_frame`."""


def completed_frame(channel: int, first: int, last: int) -> bytes:
    """Return the frame of session.completed for the commands from `first` to `last`, 32 bits each."""
    return _COMPLETED.pack(WHOLE, CONTROL, COMPLETED_SIZE, 0, channel, _COMPLETED_FIELDS, _ONE_RANGE, first, last)


def read_completed(data: bytes | bytearray, at: int) -> tuple[int, int, int] | None:
    """Return channel, first and last command of the frame at `at`, which has `COMPLETED_SIZE` octets; None if it is
    another frame than those of `completed_frame`.
    """
    flags, kind, _, track, channel, fields, width, first, last = _COMPLETED.unpack_from(data, at)
    if (flags, kind, track, fields, width) != (WHOLE, CONTROL, 0, _COMPLETED_FIELDS, _ONE_RANGE):
        return None
    return channel, first, last


def result_frame(channel: int, number: int, status: int) -> bytes:
    """Return the frame of execution.result with an XA status, for the command of this number, 32 bits."""
    return _RESULT.pack(
        WHOLE, COMMAND, RESULT_SIZE, 1, channel, _RESULT_CODE, 1, 0, _RESULT_FIELDS, number, _XA_STATUS, status
    )


def read_result(data: bytes | bytearray, at: int) -> tuple[int, int, int] | None:
    """Return channel, command and XA status of the frame at `at`, which has `RESULT_SIZE` octets; None if it is another
    frame than those of `result_frame`, apart from the flag `sync`.
    """
    flags, kind, _, track, channel, code, width, _, fields, number, struct, status = _RESULT.unpack_from(data, at)
    if (flags, kind, track, code, width, fields) != (WHOLE, COMMAND, 1, _RESULT_CODE, 1, _RESULT_FIELDS):
        return None
    return (channel, number, status) if struct == _XA_STATUS else None
