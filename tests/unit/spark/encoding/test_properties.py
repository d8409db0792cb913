"""Rows encoded together have the same properties as rows encoded one by one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client import Properties
from escrowmq.core.messages.envelope import Envelope
from escrowmq.spark.encoding.properties import DEFAULT, PropertiesEncoder
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.publication import PROTOCOL
from escrowmq.wire.formats import translated

KIND = pa.struct(
    [
        ("message_id", pa.string()),
        ("priority", pa.int32()),
        ("delivery_mode", pa.int32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
HEADERS = pa.map_(pa.string(), pa.string())
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)


def encoded(properties: list[Any] | None, headers: list[Any] | None) -> bytes | list[bytes]:
    return PropertiesEncoder().encode(
        None if properties is None else pa.array(properties, KIND),
        None if headers is None else pa.array(headers, HEADERS),
    )


def test_messages_without_properties_are_persistent() -> None:
    assert encoded(None, None) == encoded([None, None], [None, None]) == encoded([{}, None], None) == DEFAULT
    assert Properties.decode(DEFAULT) == Properties(delivery_mode=2)


@pytest.mark.rule("MSG-4")
def test_a_written_message_is_readable_for_every_protocol() -> None:
    row = {"message_id": "m", "priority": 3, "delivery_mode": 2, "timestamp": AT}
    props = encoded([row], [[("a", "1"), ("x-b", "2")]])
    assert isinstance(props, bytes)
    envelope, content = translated(
        Envelope("e", "k", protocol=PACKED, durable=True, priority=3), pack(props, b"body"), PROTOCOL
    )
    found = sections.properties(content)
    assert (envelope.durable, envelope.priority, found.message_id) == (True, 3, "m")
    assert found.creation_time == int(AT.timestamp()) * 1000
    assert sections.application_properties(content) == {"a": "1"}
    assert sections.message_annotations(content)[Symbol("x-b")] == "2"
    assert sections.body(content) == sections.Data([b"body"])


def test_equal_rows_are_encoded_once() -> None:
    row = {"message_id": "m", "priority": 3, "delivery_mode": 1, "timestamp": AT}
    found = encoded([row] * 5, [[("a", "1")]] * 5)
    assert isinstance(found, bytes)
    wanted = Properties(message_id="m", priority=3, delivery_mode=1, timestamp=int(AT.timestamp()), headers={"a": "1"})
    assert Properties.decode(found) == wanted


rows = st.lists(
    st.tuples(
        st.none()
        | st.fixed_dictionaries(
            {
                "message_id": st.none() | st.sampled_from(["a", "b", ""]),
                "priority": st.none() | st.integers(0, 3),
                "delivery_mode": st.none() | st.sampled_from([1, 2]),
                "timestamp": st.none() | st.just(AT),
            }
        ),
        st.none() | st.lists(st.tuples(st.sampled_from("xyz"), st.none() | st.sampled_from(["1", "2"])), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@given(rows, st.integers(0, 3))
def test_rows_encoded_together_equal_rows_encoded_one_by_one(
    given: list[tuple[dict[str, Any] | None, Any]], skipped: int
) -> None:
    unused = [({"message_id": "unused"}, [("q", "unused")])] * skipped
    properties = pa.array([row for row, _ in unused + given], KIND).slice(skipped)
    headers = pa.array([items for _, items in unused + given], HEADERS).slice(skipped)
    found = PropertiesEncoder().encode(properties, headers)
    octets = [found] * len(given) if isinstance(found, bytes) else found
    for each, (row, items) in zip(octets, given, strict=True):
        fields = {name: value for name, value in (row or {}).items() if value is not None}
        fields.setdefault("delivery_mode", 2)
        if "timestamp" in fields:
            fields["timestamp"] = int(fields["timestamp"].timestamp())
        if items is not None:
            fields["headers"] = dict(items)
        assert Properties.decode(each) == Properties(**fields)


def test_a_value_that_cannot_be_encoded_is_an_error() -> None:
    with pytest.raises(EscrowSparkError, match="cannot encode properties or headers: property priority"):
        encoded([{"priority": 256}], None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"priority": 256}, "property priority: a number from 0 to 255 is needed"),
        ({"message_id": "m" * 256}, "property message_id: text of at most 255 bytes is needed"),
        ({"timestamp": dt.datetime(1960, 1, 1, tzinfo=dt.UTC)}, "property timestamp: from 1970 on is needed"),
    ],
)
def test_the_error_says_what_values_are_valid(given: dict[str, Any], said: str) -> None:
    with pytest.raises(EscrowSparkError, match=said):
        encoded([given], None)


def test_text_that_is_not_utf8_is_an_error() -> None:
    wrong = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    with pytest.raises(EscrowSparkError, match="cannot encode properties or headers: 'utf-8' codec"):
        PropertiesEncoder().encode(pa.StructArray.from_arrays([wrong], ["message_id"]), None)


def test_rows_are_uniform_if_all_of_them_are_equal() -> None:
    encoder, some = PropertiesEncoder(), {"message_id": "m"}
    assert encoder.uniform(None, None) == DEFAULT
    assert encoder.uniform(pa.array([some] * 3, KIND), None) == Properties(message_id="m", delivery_mode=2).encode()
    for rows in ([some, some, None], [some, None, some]):
        assert encoder.uniform(pa.array(rows, KIND), None) is None
    maps = pa.array([[("a", "1")], [("a", "2")], [("a", "1")]], HEADERS)
    assert encoder.uniform(None, maps) is None
