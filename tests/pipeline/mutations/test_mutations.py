"""Single faults in records of valid journals, with checksums made right again, are found each time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import pytest

from tests.pipeline.direct import audited
from tests.pipeline.mutations.faults import FAULTS
from tests.pipeline.mutations.rewriting import Copy, read
from tests.pipeline.mutations.sources import SOURCES

PLACES = 1
"""The number of places in each journal in which a fault is planted."""
MANY_PLACES = 12


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Copy]:
    """Return the valid journals."""
    found = {}
    for name, write in SOURCES.items():
        folder = tmp_path_factory.mktemp("journal")
        write(folder)
        found[name] = read(folder)
    return found


def _planted(journals: Mapping[str, Copy], fault: str, places: int) -> Iterator[tuple[str, Copy]]:
    for name, journal in journals.items():
        for changed in islice(FAULTS[fault].plant(journal, random.Random(fault)), places):
            yield name, changed


@pytest.mark.rule("PIPE-8")
@pytest.mark.parametrize("source", SOURCES)
def test_a_journal_without_a_fault_is_clean(source: str, journals: Mapping[str, Copy], tmp_path: Path) -> None:
    journals[source].write(tmp_path)
    assert audited(tmp_path).wrong == []


@pytest.mark.rule("PIPE-8")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, journals: Mapping[str, Copy], tmp_path: Path) -> None:
    _check(journals, fault, PLACES, tmp_path)


@pytest.mark.long
@pytest.mark.rule("PIPE-8")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_in_many_places(fault: str, journals: Mapping[str, Copy], tmp_path: Path) -> None:
    _check(journals, fault, MANY_PLACES, tmp_path)


def _check(journals: Mapping[str, Copy], fault: str, places: int, folder: Path) -> None:
    planted = 0
    for name, changed in _planted(journals, fault, places):
        changed.write(folder)
        planted += 1
        assert audited(folder).wrong, f"not found in {name}"
    assert planted, "no journal has a record of this kind"
