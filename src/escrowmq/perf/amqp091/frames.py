"""Encoding of the few AMQP 0-9-1 frames that a load needs (specification, sections 1 and 4.2).

It deliberately shares no code with the broker's codec: a tool that measures and checks a broker must not share its
faults.
"""

from __future__ import annotations

from struct import Struct, pack
from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8
FRAME_HEAD: Final = Struct(">BHI")
FRAME_HEAD_SIZE: Final = 7
FRAME_MAX: Final = 131072
"""The largest frame that the tool agrees to, whole."""


def method_id(class_id: int, number: int) -> int:
    """Class and method in one 32-bit number, as the first four bytes of a method frame's payload hold them."""
    return class_id << 16 | number


CONNECTION_START: Final = method_id(10, 10)
CONNECTION_START_OK: Final = method_id(10, 11)
CONNECTION_TUNE: Final = method_id(10, 30)
CONNECTION_TUNE_OK: Final = method_id(10, 31)
CONNECTION_OPEN: Final = method_id(10, 40)
CONNECTION_OPEN_OK: Final = method_id(10, 41)
CONNECTION_CLOSE: Final = method_id(10, 50)
CONNECTION_CLOSE_OK: Final = method_id(10, 51)
CONNECTION_BLOCKED: Final = method_id(10, 60)
CONNECTION_UNBLOCKED: Final = method_id(10, 61)
CHANNEL_OPEN: Final = method_id(20, 10)
CHANNEL_OPEN_OK: Final = method_id(20, 11)
CHANNEL_CLOSE: Final = method_id(20, 40)
EXCHANGE_DECLARE: Final = method_id(40, 10)
EXCHANGE_DECLARE_OK: Final = method_id(40, 11)
EXCHANGE_DELETE: Final = method_id(40, 20)
EXCHANGE_DELETE_OK: Final = method_id(40, 21)
QUEUE_DECLARE: Final = method_id(50, 10)
QUEUE_DECLARE_OK: Final = method_id(50, 11)
QUEUE_BIND: Final = method_id(50, 20)
QUEUE_BIND_OK: Final = method_id(50, 21)
QUEUE_PURGE: Final = method_id(50, 30)
QUEUE_PURGE_OK: Final = method_id(50, 31)
QUEUE_DELETE: Final = method_id(50, 40)
QUEUE_DELETE_OK: Final = method_id(50, 41)
BASIC_QOS: Final = method_id(60, 10)
BASIC_QOS_OK: Final = method_id(60, 11)
BASIC_CONSUME: Final = method_id(60, 20)
BASIC_CONSUME_OK: Final = method_id(60, 21)
BASIC_CANCEL: Final = method_id(60, 30)
BASIC_PUBLISH: Final = method_id(60, 40)
BASIC_RETURN: Final = method_id(60, 50)
BASIC_DELIVER: Final = method_id(60, 60)
BASIC_GET: Final = method_id(60, 70)
BASIC_GET_OK: Final = method_id(60, 71)
BASIC_GET_EMPTY: Final = method_id(60, 72)
BASIC_ACK: Final = method_id(60, 80)
BASIC_NACK: Final = method_id(60, 120)
CONFIRM_SELECT: Final = method_id(85, 10)
CONFIRM_SELECT_OK: Final = method_id(85, 11)
TX_SELECT: Final = method_id(90, 10)
TX_SELECT_OK: Final = method_id(90, 11)
TX_COMMIT: Final = method_id(90, 20)
TX_COMMIT_OK: Final = method_id(90, 21)

DTX_SELECT: Final = method_id(101, 10)
DTX_SELECT_OK: Final = method_id(101, 11)
DTX_START: Final = method_id(101, 20)
DTX_START_OK: Final = method_id(101, 21)
DTX_END: Final = method_id(101, 30)
DTX_END_OK: Final = method_id(101, 31)
DTX_COMMIT: Final = method_id(105, 10)
DTX_COMMIT_OK: Final = method_id(105, 11)
DTX_PREPARE: Final = method_id(105, 40)
DTX_PREPARE_OK: Final = method_id(105, 41)
XA_OK: Final = 8

ACK_FRAME: Final = Struct(">BHIIQBB")
"""A whole basic.ack or basic.nack: type, channel, length, method, tag, bits, end."""

EMPTY_METHOD_FRAME_SIZE: Final = FRAME_OVERHEAD + 4

TableValue = bool | int | str | dict[str, "TableValue"]


def shortstr(text: str) -> bytes:
    """Return a short string. Raises ValueError over 255 bytes."""
    data = text.encode()
    if len(data) > 255:
        raise ValueError(f"a short string holds at most 255 bytes, this has {len(data)}")
    return bytes((len(data),)) + data


def longstr(data: bytes) -> bytes:
    """Return a long string."""
    return pack(">I", len(data)) + data


def table(fields: dict[str, TableValue]) -> bytes:
    """Return a field table of booleans, 32-bit integers, strings and tables."""
    return longstr(b"".join(shortstr(name) + _field(value) for name, value in fields.items()))


def _field(value: TableValue) -> bytes:
    if isinstance(value, bool):
        return b"t" + bytes((value,))
    if isinstance(value, int):
        return b"I" + pack(">i", value)
    if isinstance(value, str):
        return b"S" + longstr(value.encode())
    return b"F" + table(value)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return one frame."""
    return FRAME_HEAD.pack(kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, method: int, arguments: bytes = b"") -> bytes:
    """Return a method frame; `method` as from `method_id`."""
    return frame(METHOD, channel, pack(">I", method) + arguments)


def start_ok(user: str, password: str, name: str) -> bytes:
    """connection.start-ok with SASL PLAIN."""
    properties = table(
        {
            "product": "escrowmq perf",
            "connection_name": name,
            "capabilities": {
                "publisher_confirms": True,
                "basic.nack": True,
                "consumer_cancel_notify": True,
                "connection.blocked": True,
                "authentication_failure_close": True,
            },
        }
    )
    response = longstr(b"\0" + user.encode() + b"\0" + password.encode())
    return method(0, CONNECTION_START_OK, properties + shortstr("PLAIN") + response + shortstr("en_US"))


def tune_ok(channel_max: int, frame_max: int) -> bytes:
    """connection.tune-ok without heartbeats: the tool has its own deadlines."""
    return method(0, CONNECTION_TUNE_OK, pack(">HIH", channel_max, frame_max, 0))


def connection_open(vhost: str) -> bytes:
    """connection.open."""
    return method(0, CONNECTION_OPEN, shortstr(vhost) + b"\0\0")


def connection_close() -> bytes:
    """connection.close, with 200."""
    return method(0, CONNECTION_CLOSE, pack(">H", 200) + shortstr("done") + pack(">HH", 0, 0))


def channel_open(channel: int) -> bytes:
    """channel.open."""
    return method(channel, CHANNEL_OPEN, b"\0")


def exchange_declare(channel: int, name: str, kind: str, durable: bool) -> bytes:
    """exchange.declare."""
    return method(
        channel, EXCHANGE_DECLARE, b"\0\0" + shortstr(name) + shortstr(kind) + bytes((durable << 1,)) + table({})
    )


def exchange_delete(channel: int, name: str) -> bytes:
    """exchange.delete."""
    return method(channel, EXCHANGE_DELETE, b"\0\0" + shortstr(name) + b"\0")


def queue_declare(
    channel: int, name: str, durable: bool, passive: bool = False, arguments: dict[str, TableValue] | None = None
) -> bytes:
    """queue.declare."""
    bits = bytes((passive | durable << 1,))
    return method(channel, QUEUE_DECLARE, b"\0\0" + shortstr(name) + bits + table(arguments or {}))


def queue_bind(
    channel: int, queue: str, exchange: str, routing_key: str = "", arguments: dict[str, TableValue] | None = None
) -> bytes:
    """queue.bind."""
    names = shortstr(queue) + shortstr(exchange) + shortstr(routing_key)
    return method(channel, QUEUE_BIND, b"\0\0" + names + b"\0" + table(arguments or {}))


def queue_purge(channel: int, name: str) -> bytes:
    """queue.purge."""
    return method(channel, QUEUE_PURGE, b"\0\0" + shortstr(name) + b"\0")


def queue_delete(channel: int, name: str) -> bytes:
    """queue.delete without conditions: the queue is deleted even if it holds messages."""
    return method(channel, QUEUE_DELETE, b"\0\0" + shortstr(name) + b"\0")


def basic_qos(channel: int, prefetch: int) -> bytes:
    """basic.qos for the consumers that follow on the channel."""
    return method(channel, BASIC_QOS, pack(">IHB", 0, prefetch, 0))


def basic_consume(
    channel: int, queue: str, consumer_tag: str, auto_ack: bool, arguments: dict[str, TableValue] | None = None
) -> bytes:
    """basic.consume."""
    return method(
        channel,
        BASIC_CONSUME,
        b"\0\0" + shortstr(queue) + shortstr(consumer_tag) + bytes((auto_ack << 1,)) + table(arguments or {}),
    )


def basic_get(channel: int, queue: str, auto_ack: bool) -> bytes:
    """basic.get."""
    return method(channel, BASIC_GET, b"\0\0" + shortstr(queue) + bytes((auto_ack,)))


def basic_ack(channel: int, tag: int, multiple: bool) -> bytes:
    """basic.ack."""
    return ACK_FRAME.pack(METHOD, channel, 13, BASIC_ACK, tag, multiple, FRAME_END)


def single_acks(channel: int, first: int, last: int) -> bytes:
    """basic.ack for each tag from `first` to `last`."""
    pack = ACK_FRAME.pack
    return b"".join([pack(METHOD, channel, 13, BASIC_ACK, tag, 0, FRAME_END) for tag in range(first, last + 1)])


def confirm_select(channel: int) -> bytes:
    """confirm.select."""
    return method(channel, CONFIRM_SELECT, b"\0")


def tx_select(channel: int) -> bytes:
    """tx.select."""
    return method(channel, TX_SELECT)


def tx_commit(channel: int) -> bytes:
    """tx.commit."""
    return method(channel, TX_COMMIT)


def dtx_select(channel: int) -> bytes:
    """dtx-demarcation.select."""
    return method(channel, DTX_SELECT)


def xid(gtrid: bytes) -> bytes:
    """Return an xid of the tool's own format, with one branch."""
    return pack(">IBB", 0x70657266, len(gtrid), 1) + gtrid + b"\1"


def dtx(channel: int, number: int, branch: bytes, bits: int | None = None) -> bytes:
    """Return a dtx method about the branch `branch`, an `xid`."""
    return method(channel, number, b"\0\0" + longstr(branch) + (b"" if bits is None else bytes((bits,))))
