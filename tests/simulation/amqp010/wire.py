"""Frames, controls and commands of AMQP 0-10 for simulated clients and their observer.

It shares no code with the broker's codec, except for the values of maps. Only the operations that the clients of a
simulated history use are here, and each has the fields that the specification gives it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from escrowmq.wire.amqp010.codec.decoding import read_map
from escrowmq.wire.amqp010.codec.encoding import write_map

PROTOCOL_HEADER: Final = b"AMQP\x01\x01\x00\x0a"
MASK: Final = 0xFFFFFFFF
_MODES: Final = "accept_mode:uint8 acquire_mode:uint8"
_CONTROLS: Final = (1, 2)  # classes whose operations are controls
_SIZES: Final = {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}
_VARIABLE: Final = {"str8": 1, "str16": 2, "vbin8": 1, "vbin16": 2, "vbin32": 4, "map": 4, "array": 4, "struct32": 4}

FIELDS: Final[dict[int, tuple[str, str]]] = {
    0x0101: ("connection.start", "properties:map mechanisms:array locales:array"),
    0x0102: ("connection.start-ok", "properties:map mechanism:str8 response:vbin32 locale:str8"),
    0x0105: ("connection.tune", "channel_max:uint16 frame_max:uint16 heartbeat_min:uint16 heartbeat_max:uint16"),
    0x0106: ("connection.tune-ok", "channel_max:uint16 frame_max:uint16 heartbeat:uint16"),
    0x0107: ("connection.open", "vhost:str8 capabilities:array insist:bit"),
    0x0108: ("connection.open-ok", "hosts:array"),
    0x010A: ("connection.heartbeat", ""),
    0x010B: ("connection.close", "code:uint16 text:str8"),
    0x010C: ("connection.close-ok", ""),
    0x0201: ("session.attach", "name:vbin16 force:bit"),
    0x0202: ("session.attached", "name:vbin16"),
    0x0203: ("session.detach", "name:vbin16"),
    0x0204: ("session.detached", "name:vbin16 code:uint8"),
    0x0205: ("session.request-timeout", "timeout:uint32"),
    0x0206: ("session.timeout", "timeout:uint32"),
    0x0207: ("session.command-point", "id:uint32 offset:uint64"),
    0x0208: ("session.expected", "commands:set fragments:array"),
    0x0209: ("session.confirmed", "commands:set fragments:array"),
    0x020A: ("session.completed", "commands:set timely_reply:bit"),
    0x020B: ("session.known-completed", "commands:set"),
    0x020C: ("session.flush", "expected:bit confirmed:bit completed:bit"),
    0x020D: ("session.gap", "commands:set"),
    0x0301: ("execution.sync", ""),
    0x0302: ("execution.result", "id:uint32 value:struct32"),
    0x0303: (
        "execution.exception",
        "code:uint16 id:uint32 class:uint8 command:uint8 field:uint8 description:str16 info:map",
    ),
    0x0401: ("message.transfer", f"destination:str8 {_MODES}"),
    0x0402: ("message.accept", "transfers:set"),
    0x0403: ("message.reject", "transfers:set code:uint16 text:str8"),
    0x0404: ("message.release", "transfers:set set_redelivered:bit"),
    0x0407: (
        "message.subscribe",
        f"queue:str8 destination:str8 {_MODES} exclusive:bit resume_id:str16 resume_ttl:uint64 arguments:map",
    ),
    0x0408: ("message.cancel", "destination:str8"),
    0x0409: ("message.set-flow-mode", "destination:str8 mode:uint8"),
    0x040A: ("message.flow", "destination:str8 unit:uint8 value:uint32"),
    0x040B: ("message.flush", "destination:str8"),
    0x040C: ("message.stop", "destination:str8"),
    0x0501: ("tx.select", ""),
    0x0502: ("tx.commit", ""),
    0x0503: ("tx.rollback", ""),
    0x0601: ("dtx.select", ""),
    0x0602: ("dtx.start", "xid:struct32 join:bit resume:bit"),
    0x0603: ("dtx.end", "xid:struct32 fail:bit suspend:bit"),
    0x0604: ("dtx.commit", "xid:struct32 one_phase:bit"),
    0x0605: ("dtx.forget", "xid:struct32"),
    0x0607: ("dtx.prepare", "xid:struct32"),
    0x0608: ("dtx.recover", ""),
    0x0609: ("dtx.rollback", "xid:struct32"),
    0x0701: (
        "exchange.declare",
        "exchange:str8 type:str8 alternate:str8 passive:bit durable:bit auto_delete:bit arguments:map",
    ),
    0x0704: ("exchange.bind", "queue:str8 exchange:str8 key:str8 arguments:map"),
    0x0801: (
        "queue.declare",
        "queue:str8 alternate:str8 passive:bit durable:bit exclusive:bit auto_delete:bit arguments:map",
    ),
    0x0802: ("queue.delete", "queue:str8 if_unused:bit if_empty:bit"),
    0x0803: ("queue.purge", "queue:str8"),
    0x0804: ("queue.query", "queue:str8"),
}
_CODES: Final = {name: code for code, (name, _) in FIELDS.items()}
DELIVERY: Final = (
    "discard_unroutable:bit immediate:bit redelivered:bit priority:uint8 mode:uint8 ttl:uint64 timestamp:uint64 "
    "expiration:uint64 exchange:str8 key:str8 resume_id:str16 resume_ttl:uint64"
)
MESSAGE: Final = (
    "length:uint64 id:uuid correlation:vbin16 reply_to:reply content_type:str8 encoding:str8 user:vbin16 app:vbin16 "
    "headers:map"
)
QUERY: Final = (
    "queue:str8 alternate:str8 durable:bit exclusive:bit auto_delete:bit arguments:map messages:uint32 "
    "subscribers:uint32"
)

XID: Final = "format:uint32 gtrid:vbin8 bqual:vbin8"
_XID_CODE: Final = b"\x06\x04"


@dataclass(eq=False)
class Operation:
    """A control or a command. `values` has the fields that are present. `header` and `body` are those of a message."""

    channel: int
    name: str
    values: dict[str, Any]
    header: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    @property
    def is_control(self) -> bool:
        return _CODES[self.name] >> 8 in _CONTROLS

    def __str__(self) -> str:
        return f"{self.name} {self.values}"


def pack(fields: str, values: dict[str, Any]) -> bytes:
    """Return the presence flags and the fields."""
    flags, octets = 0, b""
    for number, (name, kind) in enumerate(_pairs(fields)):
        value = values.get(name)
        if value is None or value is False:
            continue
        flags |= 1 << number
        if kind in _SIZES:
            octets += value.to_bytes(_SIZES[kind], "big")
        elif kind == "set":
            octets += (8 * len(value)).to_bytes(2, "big")
            octets += b"".join(struct.pack(">II", first & MASK, last & MASK) for first, last in value)
        elif kind == "map":
            octets += write_map(value)
        elif kind != "bit":
            data = value.encode() if isinstance(value, str) else value
            octets += len(data).to_bytes(_VARIABLE[kind], "big") + data
    return flags.to_bytes(2, "little") + octets


def unpack(fields: str, data: bytes) -> dict[str, Any]:
    """Return the fields that are present. Raises ValueError unless they fill the octets."""
    flags, at = int.from_bytes(data[:2], "little"), 2
    values: dict[str, Any] = {}
    for number, (name, kind) in enumerate(_pairs(fields)):
        if not flags >> number & 1:
            continue
        if kind == "bit":
            values[name] = True
            continue
        if kind in _SIZES or kind == "uuid":
            size, start = _SIZES.get(kind, 16), at
        elif kind in ("set", "reply"):
            size, start = int.from_bytes(data[at : at + 2], "big"), at + 2
        else:
            width = _VARIABLE[kind]
            size, start = int.from_bytes(data[at : at + width], "big"), at + width
        octets = data[start : start + size]
        if kind in _SIZES:
            values[name] = int.from_bytes(octets, "big")
        elif kind == "set":
            values[name] = list(struct.iter_unpack(">II", octets))
        elif kind == "map":
            values[name] = read_map(data, at, len(data))[0]
        else:
            values[name] = octets.decode() if kind.startswith("str") and kind != "struct32" else octets
        at = start + size
    if at != len(data):
        raise ValueError(f"{len(data)} octets for the fields {values}")
    return values


def _pairs(fields: str) -> Iterator[tuple[str, str]]:
    for each in fields.split():
        name, _, kind = each.partition(":")
        yield name, kind


def operation(channel: int, name: str, /, **values: Any) -> bytes:
    """Return the frame of a control or of a command without content."""
    return _frames(channel, _payload(name, values))


def transfer(
    channel: int, exchange: str, delivery: dict[str, Any], body: bytes, frame_max: int, accept_mode: int = 1
) -> bytes:
    """Return the frames of a message.transfer to an exchange, which is to be accepted if `accept_mode` is 0."""
    octets = pack(DELIVERY, delivery)
    header = (len(octets) + 2).to_bytes(4, "big") + b"\x04\x01" + octets
    payload = _payload("message.transfer", {"destination": exchange, "accept_mode": accept_mode})
    return _frames(channel, payload, header, body, frame_max=frame_max)


def _payload(name: str, values: dict[str, Any]) -> bytes:
    code = _CODES[name]
    header = b"" if code >> 8 in _CONTROLS else b"\x01\x00"
    return code.to_bytes(2, "big") + header + pack(FIELDS[code][1], values)


def _frames(channel: int, *segments: bytes, frame_max: int = 4096) -> bytes:
    is_control = segments[0][0] in _CONTROLS
    found = b""
    for number, segment in enumerate(segments):
        whole = (8 if number == 0 else 0) | (4 if number == len(segments) - 1 else 0)
        parts = [segment[at : at + frame_max - 12] for at in range(0, max(len(segment), 1), frame_max - 12)]
        for place, part in enumerate(parts):
            flags = whole | (2 if place == 0 else 0) | (1 if place == len(parts) - 1 else 0)
            kind = 0 if is_control else number + 1
            found += struct.pack(">BBHBBHI", flags, kind, len(part) + 12, 0, not is_control, channel, 0) + part
    return found


class Parser:
    """Collects the bytes of one direction into operations."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False
        self._segments: dict[tuple[int, int], list[bytes]] = {}

    def feed(self, data: bytes) -> list[Operation]:
        """Return the operations that are now complete."""
        data = self._rest + data
        at = 0
        if not self._begun:
            if len(data) < 8:
                self._rest = data
                return []
            assert data.startswith(PROTOCOL_HEADER)
            self._begun, at = True, 8
        found = []
        while len(data) - at >= 12:
            flags, _, size, _, track, channel, _ = struct.unpack_from(">BBHBBHI", data, at)
            if len(data) - at < size:
                break
            segments = self._segments.setdefault((channel, track), [])
            if flags & 2:
                segments.append(b"")
            segments[-1] += data[at + 12 : at + size]
            at += size
            if flags & 5 == 5:
                del self._segments[channel, track]
                found.append(_read(channel, segments))
        self._rest = data[at:]
        return found


def _read(channel: int, segments: list[bytes]) -> Operation:
    payload = segments[0]
    name, fields = FIELDS[int.from_bytes(payload[:2], "big")]
    start = 2 if payload[0] in _CONTROLS else 4
    found = Operation(channel, name, unpack(fields, payload[start:]))
    if len(segments) > 1:
        found.body = segments[2]
        header = segments[1]
        while header:
            size, code = struct.unpack_from(">IH", header)
            found.header |= unpack(DELIVERY if code == 0x0401 else MESSAGE, header[6 : 4 + size])
            header = header[4 + size :]
    return found


def query_result(value: bytes) -> dict[str, Any]:
    """Return the fields of the result of queue.query, without its code."""
    return unpack(QUERY, value[2:])


def xid_struct(format_id: int, gtrid: bytes, bqual: bytes) -> bytes:
    """Return a struct dtx.xid, with its code."""
    return _XID_CODE + pack(XID, {"format": format_id, "gtrid": gtrid, "bqual": bqual})


def xa_status(value: bytes) -> int:
    """Return the status in the result of a command of the class dtx."""
    return int(unpack("status:uint16", value[2:])["status"])


def recovered(value: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the xids in the result of dtx.recover: an array of structs, each with its size and its code."""
    array = unpack("in_doubt:array", value[2:])["in_doubt"]
    found, at = [], 5  # behind the type and the number of items
    while at < len(array):
        size = int.from_bytes(array[at : at + 4], "big")
        fields = unpack(XID, array[at + 6 : at + 4 + size])
        found.append((fields["format"], fields["gtrid"], fields["bqual"]))
        at += 4 + size
    return found
