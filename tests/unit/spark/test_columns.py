"""A block and the record batch made from it agree, message by message."""

from __future__ import annotations

import datetime as dt
from array import array
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from escrowmq.client import Properties
from escrowmq.columnar.texts import as_text
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.reservations.reading import Batch, Shared
from escrowmq.spark.columns import Columns
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.spark.schema import PROPERTIES, SOURCE
from escrowmq.wire.amqp091 import bulk
from escrowmq.wire.amqp091.publication import PROTOCOL

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FULL = Properties(
    content_type="application/json",
    content_encoding="gzip",
    headers={"n": 1, "flag": True, "raw": b"\xff", "text": b"abc", "none": None, "table": {"a": [1, b"x"]}},
    delivery_mode=2,
    priority=7,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    user_id="u",
    app_id="a",
    cluster_id="k",
)


def block(*runs: tuple[str, str, Properties, int, bool, list[bytes]]) -> bulk.Bulk:
    """Return a block of runs, each given as exchange, routing key, properties, time in ms, redelivered, bodies."""
    shared, bodies = [], []
    for exchange, key, properties, time, redelivered, some in runs:
        bodies += some
        envelope = Envelope(exchange, key, properties.encode(), protocol=PROTOCOL)
        shared.append(Shared(len(bodies), envelope, time, redelivered))
    positions = array("Q", range(10, 10 + len(bodies)))
    batch = Batch(1, 1 + len(bodies), positions, array("I", map(len, bodies)), [b"".join(bodies)], shared)
    return bulk.decode(bulk.encode(batch))


def test_all_columns() -> None:
    found = Columns(SOURCE).batch(
        "q",
        block(
            ("", "q", Properties(), 5, False, [b"a", b""]),
            ("x", "k.ü", FULL, 6, True, [b"\x00\xff" * 3]),
            ("", "q", Properties(), 7, False, [b"z"]),
        ),
    )
    found.validate(full=True)
    plain = {"queue": "q", "exchange": "", "routing_key": "q", "headers": None}
    nothing = dict.fromkeys(PROPERTIES.names)
    full = {name: getattr(FULL, name) for name in PROPERTIES.names}
    full["timestamp"] = EPOCH + dt.timedelta(seconds=1_700_000_000)
    headers = [("n", "1"), ("flag", "true"), ("raw", "/w=="), ("text", "abc"), ("none", None)]
    headers.append(("table", '{"a": [1, "x"]}'))
    wanted: list[dict[str, Any]] = [
        {**plain, "position": 10, "body": b"a", "redelivered": False, "timestamp": at(5), "properties": nothing},
        {**plain, "position": 11, "body": b"", "redelivered": False, "timestamp": at(5), "properties": nothing},
        {
            "queue": "q",
            "position": 12,
            "exchange": "x",
            "routing_key": "k.ü",
            "headers": headers,
            "body": b"\x00\xff" * 3,
            "redelivered": True,
            "timestamp": at(6),
            "properties": full,
        },
        {**plain, "position": 13, "body": b"z", "redelivered": False, "timestamp": at(7), "properties": nothing},
    ]
    assert found.to_pylist() == wanted


def at(milliseconds: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=milliseconds)


def test_bodies_and_positions_are_not_copied() -> None:
    given = block(("", "q", Properties(), 5, False, [b"a" * 100] * 50))
    found = Columns(SOURCE).batch("q", given)
    body = found.column("body").buffers()
    assert body[2].address == pa.py_buffer(given.contents.data).address
    assert found.column("position").buffers()[1].address == pa.py_buffer(given.positions).address


def test_columns_absent_from_the_schema_are_not_built() -> None:
    properties = StructType([StructField("message_id", StringType())])
    schema = StructType([StructField("body", StringType()), StructField("properties", properties)])
    found = Columns(schema).batch("q", block(("", "q", FULL, 5, False, ["ü".encode()])))
    assert found.to_pylist() == [{"body": "ü", "properties": {"message_id": "m"}}]
    assert Columns(StructType()).batch("q", block(("", "q", FULL, 5, False, [b"a", b"b"]))).num_rows == 2


def test_a_body_that_is_not_utf8_is_refused_when_text_is_asked_for() -> None:
    schema = StructType([StructField("body", StringType())])
    with pytest.raises(
        EscrowSparkError, match="queue 'q': the body of the message at position 11 is not UTF-8: declare"
    ):
        Columns(schema).batch("q", block(("", "q", FULL, 5, False, [b"a", b"\xff", b"\xff"])))


runs = st.lists(
    st.tuples(
        st.sampled_from(["", "x"]),
        st.text(max_size=3),
        st.builds(Properties, message_id=st.none() | st.text(max_size=3), priority=st.none() | st.integers(0, 255)),
        st.integers(0, 1 << 40),
        st.booleans(),
        st.lists(st.binary(max_size=20), min_size=1, max_size=4),
    ),
    max_size=6,
)


@given(runs)
def test_a_record_batch_agrees_with_the_messages_row_by_row(
    some: list[tuple[str, str, Properties, int, bool, list[bytes]]],
) -> None:
    given = block(*some)
    rows = Columns(SOURCE).batch("q", given).to_pylist()
    assert len(rows) == given.count
    for row, message in zip(rows, given.messages(), strict=True):
        assert (row["position"], row["body"]) == (message.position, message.body)
        assert (row["exchange"].encode(), row["routing_key"].encode()) == (message.exchange, message.routing_key)
        assert row["timestamp"] == EPOCH + dt.timedelta(microseconds=message.time)
        assert row["redelivered"] == message.redelivered
        properties = Properties.decode(message.properties)
        assert row["properties"]["message_id"] == properties.message_id
        assert row["properties"]["priority"] == properties.priority


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), ("a", "a"), (True, "true"), (False, "false"), (1, "1"), (1.5, "1.5"), (Decimal("1.50"), "1.50")],
)
def test_a_header_value_is_converted_to_text(value: object, text: str | None) -> None:
    assert as_text(value) == text
