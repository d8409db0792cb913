"""Schemas of source and sink are checked, and invalid ones are refused with a clear line."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import DataType, MapType, StructField, StructType, _parse_datatype_json_value

from escrowmq.spark.errors import OptionError
from escrowmq.spark.schema import SOURCE, check_sink, check_source


def kind(text: str) -> DataType:
    """Parse a type in SQL's notation. Spark's own parser needs a JVM."""
    name, _, inner = text.partition("<")
    if name == "struct":
        return StructType([StructField(*each) for each in fields(inner[:-1].replace(": ", " "))])
    if name == "map":
        key, value = inner[:-1].split(", ")
        return MapType(kind(key), kind(value))
    names = {"int": "integer", "bigint": "long", "tinyint": "byte"}
    return _parse_datatype_json_value(names.get(name, name))


def fields(text: str) -> list[tuple[str, DataType]]:
    parts = [part.split(" ", 1) for part in re.split(r", (?![^<]*>)", text) if part]
    return [(name, kind(rest)) for name, rest in parts]


def schema(text: str) -> StructType:
    return StructType([StructField(*each) for each in fields(text)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "body binary",
        "body string, queue string",
        "properties struct<message_id: string, priority: int>",
        "headers map<string, string>, redelivered boolean, timestamp timestamp, position bigint",
    ],
)
def test_a_source_accepts_any_of_its_columns(text: str) -> None:
    check_source(schema(text))


def test_a_source_accepts_its_full_schema() -> None:
    check_source(SOURCE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value binary", "no column 'value'; its columns are queue, position,"),
        ("body int", "column body must be binary or string, not int"),
        ("position int", "column position must be bigint, not int"),
        ("properties string", "column properties must be a struct, not string"),
        ("properties struct<ttl: string>", "there is no property 'ttl'; the properties are content_type,"),
        ("properties struct<priority: string>", "property priority must be int, not string"),
        ("headers map<string, int>", "column headers must be map<string,string>, not map<string,int>"),
        ("body string, queue string, body binary", "column 'body' appears twice"),
        ("properties struct<type: string, type: string>", "property 'type' appears twice"),
    ],
)
def test_a_source_refuses_unknown_and_mistyped_columns(text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_source(schema(text))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("body string", {"queue"}),
        ("body binary, queue string", set()),
        ("body binary, exchange string, routing_key string", set()),
        ("body binary, routing_key string", {"exchange"}),
        ("body binary", {"exchange", "key"}),
        ("body binary, queue string, exchange string, position bigint, timestamp timestamp", {"queue"}),
        ("body binary, properties struct<priority: tinyint>, headers map<string, string>", {"queue"}),
    ],
)
def test_a_sink_accepts_rows_with_a_body_and_a_target(text: str, given: set[str]) -> None:
    check_sink(schema(text), **{name: name in given for name in ("queue", "exchange", "key")})


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("value binary", {"queue"}, "no column 'value'; its columns are queue, exchange,"),
        ("queue string", set(), "column body must be binary or string, and it is missing"),
        ("body int", {"queue"}, "column body must be binary or string, not int"),
        ("body binary", set(), "the target is missing: set option queue or exchange"),
        ("body binary, queue string, exchange string", set(), "the target is ambiguous: drop column queue or exchange"),
        ("body binary", {"exchange"}, "an exchange requires a routing key"),
        ("body binary, exchange string", set(), "an exchange requires a routing key"),
        ("body binary, queue int", set(), "column queue must be a string, not int"),
        ("body binary, headers string", {"queue"}, "column headers must be map<string,string>, not string"),
        ("body binary, properties struct<x: int>", {"queue"}, "there is no property 'x'"),
    ],
)
def test_a_sink_refuses_rows_that_it_cannot_write(text: str, given: set[str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_sink(schema(text), **{name: name in given for name in ("queue", "exchange", "key")})
    assert said in str(caught.value)
