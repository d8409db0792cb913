"""The columns of source and sink, and checks of user-defined schemas."""

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
"""The properties of AMQP 0-9-1 (section 1.8 of its reference), apart from the headers, which are a separate column."""
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
"""The columns of the source. `timestamp` is when the broker received the message, `position` its place in the queue."""
_SINK: Final = ("queue", "exchange", "routing_key", "properties", "headers", "body")
_LEFT_OUT: Final = ("position", "timestamp", "redelivered")
"""Columns that the sink ignores, so that rows from the source can be written unchanged."""


def check_source(schema: StructType) -> None:
    """Check a schema requested for the source: any of its columns, any fields of `properties`, `body` also as a string.

    Raises:
        OptionError: the schema has an unknown or repeated column or property, or one of the wrong type.
    """
    known = {each.name: each.dataType for each in SOURCE.fields}
    _once(schema.names, "column")
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(f"the source has no column {field.name!r}; its columns are {', '.join(known)}")
        if field.name == "properties":
            _check_properties(field.dataType)
        elif field.name == "body":
            if not isinstance(field.dataType, BinaryType | StringType):
                raise OptionError(f"column body must be binary or string, not {field.dataType.simpleString()}")
        elif not _alike(field.dataType, known[field.name]):
            wanted = known[field.name].simpleString()
            raise OptionError(f"column {field.name} must be {wanted}, not {field.dataType.simpleString()}")


def check_sink(schema: StructType, *, queue: bool, exchange: bool, key: bool) -> None:
    """Check that rows of this schema can be written.

    Args:
        schema: the schema of the rows.
        queue: whether option queue is set.
        exchange: whether option exchange is set.
        key: whether option routingKey is set.

    Raises:
        OptionError: a column is unknown, missing or of the wrong type, or the target is missing or ambiguous.
    """
    names = {field.name: field.dataType for field in schema.fields}
    unknown = [name for name in names if name not in (*_SINK, *_LEFT_OUT)]
    if unknown:
        raise OptionError(
            f"the sink has no column {', '.join(map(repr, unknown))}; its columns are {', '.join(_SINK)}; "
            "put other content into body, for example with to_json(struct(…))"
        )
    if not isinstance(names.get("body"), BinaryType | StringType):
        found = f"not {names['body'].simpleString()}" if "body" in names else "and it is missing"
        raise OptionError(f"column body must be binary or string, {found}")
    if not (queue or exchange):
        if "queue" in names and "exchange" in names:
            raise OptionError("the target is ambiguous: drop column queue or exchange, or set option queue or exchange")
        if "queue" not in names and "exchange" not in names:
            raise OptionError("the target is missing: set option queue or exchange, or add column queue or exchange")
    for name in ("queue", "exchange", "routing_key"):
        if name in names and not isinstance(names[name], StringType):
            raise OptionError(f"column {name} must be a string, not {names[name].simpleString()}")
    to_exchange = exchange or (not queue and "exchange" in names)
    if to_exchange and not key and "routing_key" not in names:
        raise OptionError("an exchange requires a routing key: set option routingKey, or add column routing_key")
    if "properties" in names:
        _check_properties(names["properties"], numbers_alike=True)
    if "headers" in names and not _alike(names["headers"], HEADERS):
        raise OptionError(f"column headers must be {HEADERS.simpleString()}, not {names['headers'].simpleString()}")


def _check_properties(given: DataType, *, numbers_alike: bool = False) -> None:
    known = {each.name: each.dataType for each in PROPERTIES.fields}
    if not isinstance(given, StructType):
        raise OptionError(f"column properties must be a struct, not {given.simpleString()}")
    _once(given.names, "property")
    for field in given.fields:
        if field.name not in known:
            raise OptionError(f"there is no property {field.name!r}; the properties are {', '.join(known)}")
        numbers = isinstance(known[field.name], IntegerType) and field.dataType.simpleString() in {
            "tinyint",
            "smallint",
            "bigint",
        }
        if not _alike(field.dataType, known[field.name]) and not (numbers and numbers_alike):
            wanted = known[field.name].simpleString()
            raise OptionError(f"property {field.name} must be {wanted}, not {field.dataType.simpleString()}")


def _once(names: Sequence[str], what: str) -> None:
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise OptionError(f"{what} {twice[0]!r} appears twice in the schema")


def _alike(one: DataType, other: DataType) -> bool:
    """Return whether two types are equal apart from nullability."""
    return one.simpleString() == other.simpleString()
