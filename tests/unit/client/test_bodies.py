"""Bodies come from lists, iterators, buffers and Arrow columns."""

from __future__ import annotations

import array
from typing import Any

import pytest

from escrowmq.client.bodies import COUNT, as_body, chunks, taken
from escrowmq.client.errors import ProgrammingError


def flat(bodies: Any) -> list[bytes]:
    found = []
    for chunk in chunks(bodies):
        assert 0 < len(chunk) <= COUNT
        assert all(type(body) is bytes for body in chunk)
        found += chunk
    return found


@pytest.mark.parametrize("count", [0, 1, COUNT - 1, COUNT, COUNT + 1, 3 * COUNT])
def test_lists_and_iterators_of_any_length_are_divided_into_chunks(count: int) -> None:
    bodies = [b"%d" % i for i in range(count)]
    assert flat(bodies) == flat(tuple(bodies)) == flat(iter(bodies)) == flat(body for body in bodies) == bodies


def test_buffers_and_text_are_converted() -> None:
    numbers = array.array("i", [1, 2])
    assert flat([b"a", bytearray(b"b"), memoryview(b"c"), "ü", numbers]) == [
        b"a",
        b"b",
        b"c",
        "ü".encode(),
        numbers.tobytes(),
    ]


@pytest.mark.parametrize("body", [None, 7, ["x"]])
def test_an_element_that_is_not_a_body_is_refused(body: object) -> None:
    with pytest.raises(ProgrammingError, match="a body must be"):
        as_body(body)
    with pytest.raises(ProgrammingError, match="a body must be"):
        flat([b"x", body])


@pytest.mark.parametrize("one", [b"x", "x", bytearray(b"x"), memoryview(b"x")])
def test_a_single_body_is_refused_as_a_sequence_of_bodies(one: object) -> None:
    with pytest.raises(ProgrammingError, match="not a single body"):
        flat(one)


def test_taken_reads_no_more_items_than_it_yields() -> None:
    items = iter(range(10 * COUNT))
    assert next(taken(items)) == list(range(COUNT))
    assert next(items) == COUNT


class TestArrow:
    """Columns as Spark hands them over."""

    @pytest.mark.parametrize("kind", ["binary", "large_binary", "string", "large_string"])
    @pytest.mark.parametrize("count", [0, 1, COUNT, 2 * COUNT + 5])
    def test_arrow_columns_are_read(self, kind: str, count: int) -> None:
        pa = pytest.importorskip("pyarrow")
        texts = [str(i) * (i % 5) for i in range(count)]
        column = pa.array([text if "string" in kind else text.encode() for text in texts], getattr(pa, kind)())
        assert flat(column) == [text.encode() for text in texts]
        assert flat(column.slice(1, 7)) == [text.encode() for text in texts[1:8]]
        assert flat(pa.chunked_array([column, column[:3]])) == [text.encode() for text in texts + texts[:3]]

    def test_columns_of_fixed_width_are_read(self) -> None:
        pa = pytest.importorskip("pyarrow")
        column = pa.array([b"%04d" % i for i in range(COUNT + 3)], pa.binary(4))
        assert flat(column.slice(2)) == [b"%04d" % i for i in range(2, COUNT + 3)]
        assert flat(pa.array([b"", b""], pa.binary(0))) == [b"", b""]

    def test_nulls_and_numbers_are_refused(self) -> None:
        pa = pytest.importorskip("pyarrow")
        with pytest.raises(ProgrammingError, match="1 of 2 bodies are null"):
            flat(pa.array([b"x", None]))
        with pytest.raises(ProgrammingError, match="not an Arrow column of int64"):
            flat(pa.array([1]))
