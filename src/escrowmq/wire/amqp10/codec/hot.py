"""Fast reading and writing of transfer, disposition and flow.

The reading functions take the encodings apart that clients use. The fields that hardly vary, from `settled` on, are
looked up as one piece of octets. Any other encoding, correct or not, gives None; the generic decoder then reads the
performative.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from escrowmq.wire.amqp10.codec.composite import encode_composite, resolve
from escrowmq.wire.amqp10.codec.decoding import decode
from escrowmq.wire.amqp10.codec.encoding import compound
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.link_performatives import Disposition, Flow, Transfer

MAX_TAILS: Final = 1024
"""The most combinations of rarely varying fields that are remembered. When there are more, all are forgotten."""
MAX_TAIL_SIZE: Final = 64

_U32: Final = struct.Struct(">I")
_UINT: Final = struct.Struct(">BI")
_SMALL: Final = (b"\x43", *(bytes((0x52, number)) for number in range(1, 256)))

_transfer_tails: dict[tuple[int, bytes], tuple[Any, ...]] = {}
_disposition_tails: dict[tuple[int, bytes], tuple[Any, ...]] = {}


# ---- reading ----


def decode_transfer(data: bytes, at: int, end: int) -> tuple[Transfer, int] | None:
    """Return the transfer at `at` and its end, or None if it is not encoded in the usual way."""
    start = at
    try:
        stop = at + 5 + data[at + 4]
        if data[at + 3] != 0xC0 or stop > end:
            return None
        count = data[at + 5]
        code = data[at + 6]
        if code == 0x43:
            handle, at = 0, at + 7
        elif code == 0x52:
            handle, at = data[at + 7], at + 8
        else:
            return None
        code = data[at]
        if code == 0x70:
            (number,), at = _U32.unpack_from(data, at + 1), at + 5
        elif code == 0x52:
            number, at = data[at + 1], at + 2
        elif code == 0x43:
            number, at = 0, at + 1
        else:
            return None
        if data[at] != 0xA0:
            return None
        first = at + 2
        at = first + data[at + 1]
        tag = data[first:at]
    except (IndexError, struct.error):
        return None
    if at > stop:
        return None
    key = (count, data[at:stop])
    tail = _transfer_tails.get(key)
    if tail is None:
        return _whole_transfer(data, start, end, key)
    return Transfer(handle, number, tag, *tail), stop


def _whole_transfer(data: bytes, at: int, end: int, key: tuple[int, bytes]) -> tuple[Transfer, int]:
    value, at = decode(data, at, end)
    transfer: Transfer = resolve(value)
    if len(key[1]) <= MAX_TAIL_SIZE:
        _remember(
            _transfer_tails,
            key,
            transfer.message_format,
            transfer.settled,
            transfer.more,
            transfer.rcv_settle_mode,
            transfer.state,
            transfer.resume,
            transfer.aborted,
            transfer.batchable,
        )
    return transfer, at


def _remember(tails: dict[tuple[int, bytes], tuple[Any, ...]], key: tuple[int, bytes], *values: Any) -> None:
    if len(tails) >= MAX_TAILS:
        tails.clear()
    tails[key] = values


def decode_disposition(data: bytes, at: int, end: int) -> tuple[Disposition, int] | None:
    """Return the disposition at `at` and its end, or None if it is not encoded in the usual way."""
    start = at
    try:
        stop = at + 5 + data[at + 4]
        if data[at + 3] != 0xC0 or stop > end:
            return None
        count, role = data[at + 5], data[at + 6]
        first, at = _number(data, at + 7)
        last, at = _number(data, at)
    except (IndexError, struct.error):
        return None
    if first is None or role not in {0x41, 0x42} or at > stop:
        return None
    key = (count, data[at:stop])
    tail = _disposition_tails.get(key)
    if tail is None:
        value, at = decode(data, start, end)
        disposition: Disposition = resolve(value)
        if len(key[1]) <= MAX_TAIL_SIZE:
            _remember(_disposition_tails, key, disposition.settled, disposition.state, disposition.batchable)
        return disposition, at
    return Disposition(role == 0x41, first, last, *tail), stop


def decode_flow(data: bytes, at: int, end: int) -> tuple[Flow, int] | None:
    """Return the flow at `at` and its end, or None if it is not encoded in the usual way."""
    numbers: list[int | None] = []
    flags = [False, False]
    try:
        stop = at + 5 + data[at + 4]
        count = data[at + 5]
        if data[at + 3] != 0xC0 or stop > end or not 4 <= count <= 10:
            return None
        at += 6
        for _ in range(min(count, 8)):
            number, at = _number(data, at)
            numbers.append(number)
        for place in range(count - 8):
            if data[at] not in {0x40, 0x41, 0x42}:
                return None
            flags[place] = data[at] == 0x41
            at += 1
    except (IndexError, struct.error):
        return None
    incoming, following, outgoing = numbers[1:4]
    if at != stop or incoming is None or following is None or outgoing is None:
        return None
    handle, delivered, credit, available = (*numbers[4:], None, None, None, None)[:4]
    return (
        Flow(
            next_incoming_id=numbers[0],
            incoming_window=incoming,
            next_outgoing_id=following,
            outgoing_window=outgoing,
            handle=handle,
            delivery_count=delivered,
            link_credit=credit,
            available=available,
            drain=flags[0],
            echo=flags[1],
        ),
        stop,
    )


def _number(data: bytes, at: int) -> tuple[int | None, int]:
    """The uint or null at `at`, and its end. Raises IndexError for anything else."""
    code = data[at]
    if code == 0x52:
        return data[at + 1], at + 2
    if code == 0x70:
        return _U32.unpack_from(data, at + 1)[0], at + 5
    if code == 0x43:
        return 0, at + 1
    if code == 0x40:
        return None, at + 1
    raise IndexError


# ---- writing ----


def encode_transfer(
    handle: int, delivery_id: int, delivery_tag: bytes, settled: bool, more: bool = False, state: bytes = b""
) -> bytes:
    """Return the first or only transfer of a delivery of message format 0. `state` is encoded, empty if there is none.

    Raises CodecError if an argument is out of range.
    """
    size = len(delivery_tag)
    if size > 32:
        raise CodecError(f"a delivery tag has {size} octets; 32 are allowed")
    fields = b"".join(
        (
            _encode_number(handle),
            _encode_number(delivery_id),
            b"\xa0",
            _SIZES[size],
            delivery_tag,
            b"\x43\x41" if settled else b"\x43\x42",
        )
    )
    if state:
        return b"\x00\x53\x14" + compound(0xC0, 8, fields + (b"\x41\x40" if more else b"\x42\x40") + state)
    if more:
        return b"\x00\x53\x14" + compound(0xC0, 6, fields + b"\x41")
    return b"\x00\x53\x14\xc0" + _SIZES[len(fields) + 1] + b"\x05" + fields


_SIZES: Final = tuple(bytes((size,)) for size in range(256))


def _encode_number(number: int) -> bytes:
    if 0 <= number < 256:
        return _SMALL[number]
    try:
        return _UINT.pack(0x70, number)
    except struct.error:
        raise CodecError(f"{number} is out of the range of uint") from None


def encode_disposition(role: bool, first: int, last: int, settled: bool, state: bytes = b"\x40") -> bytes:
    """Return a disposition for the deliveries `first` to `last`. `state` is encoded; the default is none.

    Raises CodecError if an argument is out of range.
    """
    fields = b"".join(
        (
            b"\x41" if role else b"\x42",
            _encode_number(first),
            b"\x40" if first == last else _encode_number(last),
            b"\x41" if settled else b"\x42",
            state,
        )
    )
    return b"\x00\x53\x15" + compound(0xC0, 5, fields)


def encode_flow(flow: Flow) -> bytes:
    """Return a flow. Raises CodecError if a field is out of range."""
    if flow.properties is not None:
        return encode_composite(flow)
    fields = [
        b"\x40" if number is None else _encode_number(number)
        for number in (
            flow.next_incoming_id,
            flow.incoming_window,
            flow.next_outgoing_id,
            flow.outgoing_window,
            flow.handle,
            flow.delivery_count,
            flow.link_credit,
            flow.available,
        )
    ]
    if flow.drain or flow.echo:
        fields.append(b"\x41" if flow.drain else b"\x42")
        fields.append(b"\x41" if flow.echo else b"\x42")
    return b"\x00\x53\x13" + compound(0xC0, len(fields), b"".join(fields))
