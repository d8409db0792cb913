"""The columns: what the source has, what a user may ask for of it, and what the sink takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from escrowmq.spark.errors import OptionError

_TEXT: Final = StringType()
PROPERTIES: Final = StructType(
    [
        StructField("content_type", _TEXT),
        StructField("content_encoding", _TEXT),
        StructField("delivery_mode", IntegerType()),
        StructField("priority", IntegerType()),
        StructField("correlation_id", _TEXT),
        StructField("reply_to", _TEXT),
        StructField("expiration", _TEXT),
        StructField("message_id", _TEXT),
        StructField("timestamp", TimestampType()),
        StructField("type", _TEXT),
        StructField("user_id", _TEXT),
        StructField("app_id", _TEXT),
        StructField("cluster_id", _TEXT),
    ]
)
"""As in AMQP 0-9-1, section 1.8 of its reference; the headers are a column of their own."""
HEADERS: Final = MapType(_TEXT, _TEXT)
SOURCE: Final = StructType(
    [
        StructField("queue", _TEXT),
        StructField("position", LongType()),
        StructField("exchange", _TEXT),
        StructField("routing_key", _TEXT),
        StructField("properties", PROPERTIES),
        StructField("headers", HEADERS),
        StructField("body", BinaryType()),
        StructField("timestamp", TimestampType()),
        StructField("redelivered", BooleanType()),
    ]
)
"""All that the source can give. `timestamp` is when the broker got the message, `position` its place in the queue."""
_SINK: Final = ("queue", "exchange", "routing_key", "properties", "headers", "body")
_LEFT_OUT: Final = ("position", "timestamp", "redelivered")
"""Columns that the sink passes over, so that what was read can be written."""


def check_source(schema: StructType) -> None:
    """Whether a user may ask for this: any of the columns, of the properties any fields, `body` also as a string.

    Raises OptionError.
    """
    known = {each.name: each.dataType for each in SOURCE.fields}
    _once(schema.names, "column")
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(f"the source has no column {field.name!r}; it has {', '.join(known)}")
        if field.name == "properties":
            _check_properties(field.dataType)
        elif field.name == "body":
            if not isinstance(field.dataType, BinaryType | StringType):
                raise OptionError(f"column body is binary or string, not {field.dataType.simpleString()}")
        elif not _alike(field.dataType, known[field.name]):
            wanted = known[field.name].simpleString()
            raise OptionError(f"column {field.name} is {wanted}, not {field.dataType.simpleString()}")


def check_sink(schema: StructType, *, queue: bool, exchange: bool, key: bool) -> None:
    """Whether rows of this schema can be written, if these are given by options. Raises OptionError."""
    names = {field.name: field.dataType for field in schema.fields}
    unknown = [name for name in names if name not in (*_SINK, *_LEFT_OUT)]
    if unknown:
        raise OptionError(
            f"the sink has no column {', '.join(map(repr, unknown))}; it has {', '.join(_SINK)}; "
            "put the content into body, by to_json(struct(…)), say"
        )
    if not isinstance(names.get("body"), BinaryType | StringType):
        found = f", not {names['body'].simpleString()}" if "body" in names else ", and is missing"
        raise OptionError(f"column body is binary or string{found}")
    if not (queue or exchange):
        if "queue" in names and "exchange" in names:
            raise OptionError("there are columns queue and exchange: say where to by an option, or drop one of them")
        if "queue" not in names and "exchange" not in names:
            raise OptionError("where to? give option queue or exchange, or a column queue or exchange")
    for name in ("queue", "exchange", "routing_key"):
        if name in names and not isinstance(names[name], StringType):
            raise OptionError(f"column {name} is a string, not {names[name].simpleString()}")
    to_exchange = exchange or (not queue and "exchange" in names)
    if to_exchange and not key and "routing_key" not in names:
        raise OptionError("an exchange needs a routing key: option routingKey or a column routing_key")
    if "properties" in names:
        _check_properties(names["properties"], numbers_alike=True)
    if "headers" in names and not _alike(names["headers"], HEADERS):
        raise OptionError(f"column headers is {HEADERS.simpleString()}, not {names['headers'].simpleString()}")


def _check_properties(given: DataType, *, numbers_alike: bool = False) -> None:
    known = {each.name: each.dataType for each in PROPERTIES.fields}
    if not isinstance(given, StructType):
        raise OptionError(f"column properties is a struct, not {given.simpleString()}")
    _once(given.names, "property")
    for field in given.fields:
        if field.name not in known:
            raise OptionError(f"there is no property {field.name!r}; there are {', '.join(known)}")
        numbers = isinstance(known[field.name], IntegerType) and field.dataType.simpleString() in {
            "tinyint",
            "smallint",
            "bigint",
        }
        if not _alike(field.dataType, known[field.name]) and not (numbers and numbers_alike):
            wanted = known[field.name].simpleString()
            raise OptionError(f"property {field.name} is {wanted}, not {field.dataType.simpleString()}")


def _once(names: Sequence[str], what: str) -> None:
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise OptionError(f"{what} {twice[0]!r} is asked for twice")


def _alike(one: DataType, other: DataType) -> bool:
    """Whether two types are the same, whatever they say about nulls."""
    return one.simpleString() == other.simpleString()
