"""Commands, controls and the headers of messages, as the payloads of segments."""

from __future__ import annotations

from collections.abc import Iterable

from escrowmq.wire.amqp010.codec.decoding import read_struct32
from escrowmq.wire.amqp010.codec.encoding import write_struct32
from escrowmq.wire.amqp010.codec.errors import CodecError, UnknownOperation
from escrowmq.wire.amqp010.codec.spec import COMMANDS, CONTROLS
from escrowmq.wire.amqp010.codec.structs import Command, Control, Struct
from escrowmq.wire.amqp010.codec.types import UnknownStruct


def encode_command(command: Command, *, sync: bool = False) -> bytes:
    """Return the payload of a command segment: the code, the header struct of one flag, and the fields.

    `sync` asks the peer to report the completion at once. Raises CodecError for a value that a field cannot have.
    """
    return command.CODE.to_bytes(2, "big") + (b"\x01\x01" if sync else b"\x01\x00") + command.encode()


def decode_command(payload: bytes) -> tuple[Command, bool]:
    """Return the command of a command segment, and whether its completion is to be reported at once.

    Raises CodecError for a malformed command, and UnknownOperation for one that the specification does not have, or
    that is of the class `file` or `stream`.
    """
    if len(payload) < 4 or payload[2] != 1 or payload[3] > 1:
        raise CodecError("a command has no header")
    kind = COMMANDS.get(payload[0] << 8 | payload[1])
    if kind is None:
        raise UnknownOperation(payload[0], payload[1])
    return kind.decode(payload, 4, len(payload)), payload[3] == 1


def encode_control(control: Control) -> bytes:
    """Return the payload of a control segment. Raises CodecError for a value that a field cannot have."""
    return control.CODE.to_bytes(2, "big") + control.encode()


def decode_control(payload: bytes) -> Control:
    """Return the control of a control segment. Raises CodecError, UnknownOperation."""
    if len(payload) < 2:
        raise CodecError("a control has no code")
    kind = CONTROLS.get(payload[0] << 8 | payload[1])
    if kind is None:
        raise UnknownOperation(payload[0], payload[1])
    return kind.decode(payload, 2, len(payload))


def encode_header(structs: Iterable[Struct | UnknownStruct]) -> bytes:
    """Return the payload of a header segment. Raises CodecError for a value that a field cannot have."""
    return b"".join(map(write_struct32, structs))


def decode_header(payload: bytes) -> list[Struct | UnknownStruct]:
    """Return the structs of a header segment. Raises CodecError."""
    at, found = 0, []
    while at < len(payload):
        one, at = read_struct32(payload, at, len(payload))
        found.append(one)
    return found
