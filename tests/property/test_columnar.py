"""For messages of any shape, malformed ones included, the vectorised codec gives the rows of the per-message codec."""

from __future__ import annotations

import datetime as dt
import struct
from array import array
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from escrowmq.columnar.headers import MOST_SHAPES
from escrowmq.columnar.message import row
from escrowmq.columnar.properties import LATEST
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.reservations.reading import Batch, Shared
from escrowmq.spark.columns import Columns
from escrowmq.spark.schema import PROPERTIES, SOURCE
from escrowmq.wire.amqp010.codec.spec import MessageProperties
from escrowmq.wire.amqp010.content import PROTOCOL as TRANSFERS
from escrowmq.wire.amqp010.content import TransferContent
from escrowmq.wire.amqp091 import bulk, table
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL as PLAIN
from escrowmq.wire.amqp10.codec.sections import APPLICATION_PROPERTIES, DATA, encode_section
from escrowmq.wire.amqp10.codec.sections import PROPERTIES as IDS
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ
from escrowmq.wire.rocketmq.content import MessageContent

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MESSAGES = tuple[Envelope, bytes]

short = st.text(max_size=9) | st.sampled_from(["", "ä" * 127, "x" * 255])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=9),
    st.binary(max_size=9),
    st.integers(-128, 127).map(table.Byte),
    st.integers(0, 255).map(table.UnsignedByte),
    st.integers(-(2**15), 2**15 - 1).map(table.Short),
    st.integers(0, 2**16 - 1).map(table.UnsignedShort),
    st.integers(0, 2**32 - 1).map(table.UnsignedInt),
    st.integers(-(2**63), 2**63 - 1).map(table.LongL),
    st.integers(0, 2**64 - 1).map(table.Timestamp),
    st.floats(width=32).map(table.Float),
    st.sampled_from([Decimal("1.50"), Decimal(-3)]),
    st.binary(min_size=1, max_size=4).map(lambda data: table.LongStr(b"\xff" + data)),
)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(short, scalars, max_size=2)
texts = dict.fromkeys(
    (
        "content_type",
        "content_encoding",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "type",
        "user_id",
        "app_id",
        "cluster_id",
    ),
    short,
)
numbers: dict[str, st.SearchStrategy[Any]] = {
    "delivery_mode": st.integers(0, 255),
    "priority": st.integers(0, 255),
    "timestamp": st.integers(0, 2**64 - 1) | st.sampled_from([LATEST - 1, LATEST]),
    "headers": st.dictionaries(st.sampled_from(["a", "tenant", "an-id"]) | short, values, max_size=4),
}
properties = st.fixed_dictionaries({}, optional={**texts, **numbers}).map(lambda some: Properties(**some).encode())


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Octets of which some are changed, left out or added; often none."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    kept = len(data) if draw(st.booleans()) else draw(st.integers(0, len(data)))
    return bytes(data[:kept]) + draw(st.sampled_from([b"", b"", b"\0", b"\xce\xff"]))


lists = damaged(properties)
packed = damaged(st.builds(pack, lists, st.binary(max_size=20)))
plain_messages = st.tuples(lists.map(lambda props: Envelope("", "q.ä", props, protocol=PLAIN)), st.binary(max_size=20))
packed_messages = st.tuples(
    st.sampled_from([Envelope("", "q", protocol=PACKED), Envelope("x", "", protocol=PACKED)]), packed
)
keyed_messages = st.tuples(
    st.just(Envelope("x", "", protocol=KEYED)), damaged(st.builds(join, short.map(str.encode), packed))
)
sections = st.builds(
    lambda own, ids, body: (
        encode_section(IDS, ids) + encode_section(APPLICATION_PROPERTIES, own) + encode_section(DATA, body)
    ),
    st.dictionaries(short, st.none() | st.booleans() | st.text(max_size=5) | st.integers(0, 9), max_size=3),
    st.lists(st.none() | st.text(max_size=5), max_size=1),
    st.binary(max_size=9),
)
section_messages = st.tuples(
    st.just(Envelope("x", "k", protocol=SECTIONS, durable=True, priority=3, ttl=2000)), damaged(sections)
)
rocketmq = st.builds(
    lambda own, body, born: MessageContent(own, body, born_ms=born).pack(),
    st.sampled_from([b"", b"UNIQ_KEY\x01id\x02", b"a\x01b\x02KEYS\x01k\x02", b"\xff\x01\x02"]),
    st.binary(max_size=9),
    st.integers(0, 2**40),
)
rocketmq_messages = st.tuples(st.just(Envelope("t", "tag", protocol=ROCKETMQ, durable=True)), damaged(rocketmq))
transfers = st.builds(
    lambda own, kind, body, time: TransferContent(
        MessageProperties(application_headers=own, content_type=kind).write(), body, time
    ).pack(),
    st.dictionaries(short, st.none() | st.booleans() | st.text(max_size=5) | st.integers(0, 9), max_size=3).map(
        lambda own: {name: value for name, value in own.items() if len(name.encode()) <= 255}
    ),
    st.none() | st.text(max_size=9),
    st.binary(max_size=9),
    st.none() | st.integers(0, 2**64 - 1),
)
transfer_messages = st.tuples(
    st.just(Envelope("x", "k", protocol=TRANSFERS, durable=True, priority=4)), damaged(transfers)
)
messages = st.lists(
    plain_messages | packed_messages | keyed_messages | section_messages | transfer_messages | rocketmq_messages,
    max_size=8,
) | st.lists(keyed_messages, max_size=8)


def block(some: list[tuple[Envelope, bytes]]) -> bulk.Bulk:
    """Return a block as a reader gets it from the broker."""
    runs: list[Shared] = []
    for i, (envelope, _) in enumerate(some, 1):
        if runs and runs[-1].envelope is envelope:
            runs[-1] = runs[-1]._replace(end=i)
        else:
            runs.append(Shared(i, envelope, i, i % 2 == 0))
    contents = [content for _, content in some]
    positions = array("Q", range(1, 1 + len(some)))
    batch = Batch(1, 1 + len(some), positions, array("I", map(len, contents)), contents, runs)
    return bulk.decode(bulk.encode(batch))


def expected(envelope: Envelope, content: bytes) -> dict[str, Any]:
    """Return the row of the per-message codec, as Spark's types have it."""
    found = row(envelope, content)
    properties: dict[str, Any] = dict.fromkeys(PROPERTIES.names) | found.properties
    seconds = properties["timestamp"]
    properties["timestamp"] = None if seconds is None or seconds >= LATEST else EPOCH + dt.timedelta(seconds=seconds)
    return {
        "exchange": envelope.exchange,
        "routing_key": found.routing_key,
        "properties": properties,
        "headers": found.headers,
        "body": found.body,
    }


FIELDS = ("exchange", "routing_key", "properties", "headers", "body")
DECODED = Columns(StructType([SOURCE[name] for name in FIELDS]))


def table_of(*fields: bytes) -> bytes:
    inside = b"".join(fields)
    return struct.pack(">H", 0x2000) + struct.pack(">I", len(inside)) + inside


TWICE = table_of(b"\x01aI\0\0\0\1", b"\x01aI\0\0\0\2", b"\x01bV")


@settings(max_examples=min(settings().max_examples, 500))
@given(messages)
@example([(Envelope("x", "", protocol=KEYED), join(b"k", pack(TWICE, b"body")))])
@example([(Envelope("x", "", protocol=KEYED), b"")] * 2)
@example([(Envelope("", "q", protocol=PACKED), pack(b"", b"body")), (Envelope("", "q", protocol=PACKED), b"\0" * 40)])
def test_a_block_gives_the_rows_of_the_codec_for_single_messages(some: list[tuple[Envelope, bytes]]) -> None:
    batch = DECODED.batch("q", block(some))
    batch.validate(full=True)
    assert batch.to_pylist() == [expected(*each) for each in some]


@settings(max_examples=min(settings().max_examples, 500))
@given(messages, st.sets(st.sampled_from(SOURCE.names)), st.sets(st.sampled_from(PROPERTIES.names)))
def test_a_column_is_the_same_whatever_other_columns_are_asked_for(
    some: list[tuple[Envelope, bytes]], names: set[str], own: set[str]
) -> None:
    given_ = block(some)
    whole = Columns(SOURCE).batch("q", given_).to_pylist()
    wanted = [
        StructField(
            name, StructType([PROPERTIES[each] for each in sorted(own)]) if name == "properties" else field.dataType
        )
        for name in sorted(names)
        for field in [SOURCE[name]]
    ]
    found = Columns(StructType(wanted)).batch("q", given_)
    found.validate(full=True)
    for each, full in zip(found.to_pylist(), whole, strict=True):
        for name in names - {"properties"}:
            assert each[name] == full[name]
        if "properties" in names:
            assert each["properties"] == {name: full["properties"][name] for name in own}


@pytest.mark.parametrize("count", [MOST_SHAPES - 1, MOST_SHAPES + 3])
def test_tables_of_many_shapes_are_all_read(count: int) -> None:
    envelope = Envelope("x", "", protocol=KEYED)
    some = [
        (envelope, join(b"k", pack(Properties(headers={f"name-{i % count}": i}).encode(), b"b")))
        for i in range(3 * count)
    ]
    found = DECODED.batch("q", block(some)).column("headers").to_pylist()
    assert found == [[(f"name-{i % count}", str(i))] for i in range(3 * count)]
