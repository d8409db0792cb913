"""Names in columns, and the rows that share them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from escrowmq.spark.encoding.names import groups, names, runs
from escrowmq.spark.errors import EscrowSparkError


def test_names_are_one_string_if_all_rows_are_equal() -> None:
    assert names(pa.array(["a", "a"]), "queue") == "a"
    column = pa.array(["a", "b", "a", "a", "b"])
    assert names(column, "queue") is column


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array(["a", None]), "column queue contains a null"),
        (pa.array(["a", "ü" * 128]), "column queue has a value of 256 bytes; the limit is 255 bytes"),
        (
            pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers()),
            "column queue contains text that is not UTF-8",
        ),
    ],
)
def test_invalid_names_are_errors(column: pa.Array, text: str) -> None:
    with pytest.raises(EscrowSparkError, match=text):
        names(column, "queue")


def test_the_rows_of_a_name_stay_in_order() -> None:
    assert list(groups(pa.array(["a", "a"]), "queue")) == [("a", None)]
    found = [(name, rows.to_pylist()) for name, rows in groups(pa.array(["b", "a", "b", "c", "a"]), "queue") if rows]
    assert found == [("b", [0, 2]), ("a", [1, 4]), ("c", [3])]


def test_runs_of_equal_values_are_found() -> None:
    assert list(runs(pa.array(["a", "a", "b", "a"]), "exchange")) == [("a", 0, 2), ("b", 2, 3), ("a", 3, 4)]
    with pytest.raises(EscrowSparkError, match="column exchange contains a null"):
        list(runs(pa.array(["a", None]), "exchange"))
    with pytest.raises(EscrowSparkError, match="column exchange has a value of 256 bytes; the limit is 255 bytes"):
        list(runs(pa.array(["a", "e" * 256]), "exchange"))
