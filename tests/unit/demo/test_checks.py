"""The expected results are computed from the data set, and each kind of fault is named."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from escrowmq.demo.checks import Outcome, Sums, expected, faults, worst
from escrowmq.demo.flights import MEMBER

GOOD = Outcome({("UA", 5): Sums(3, 2, 71, 1), ("DL", 6): Sums(1, 1, -5, 0)}, [2])
ROWS = """carrier,hour,arr_delay
UA,5,11
UA,5,NA
UA,5,60
DL,6,-5
"""


def test_expected_results_are_computed_from_the_data_set(tmp_path: Path) -> None:
    archive = tmp_path / "flights.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(MEMBER, ROWS)
    assert expected(archive, 4) == GOOD
    assert expected(archive, 2).table == {("UA", 5): Sums(2, 1, 11, 0)}
    assert expected(archive, 4).flights == 4


def test_correct_results_have_no_errors() -> None:
    assert faults(GOOD, replace(GOOD, files=3)) == []


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (replace(GOOD, table={("UA", 5): Sums(3, 2, 71, 1)}), "the table counts 3 flights, not 4"),
        (replace(GOOD, table={**GOOD.table, ("DL", 6): Sums(1, 1, -4, 0)}), "1 of 2 rows of the table are wrong"),
        (replace(GOOD, late=[2, 2]), "1 late flights are on the queue more than once"),
        (replace(GOOD, late=[]), "1 late flights are not on the queue"),
        (replace(GOOD, late=[2, 3]), "1 flights on the queue of late flights were not late"),
        (replace(GOOD, waiting=2), "2 messages waiting"),
        (replace(GOOD, held=2), "2 held"),
        (replace(GOOD, in_doubt=2), "2 branches in doubt"),
    ],
)
def test_each_error_is_named(outcome: Outcome, words: str) -> None:
    found = faults(GOOD, outcome)
    assert any(words in fault for fault in found), found


def test_the_worst_delay_requires_enough_flights() -> None:
    assert worst(GOOD.table, 1) == (("UA", 5), 35.5)
    assert worst(GOOD.table, 3) is None
