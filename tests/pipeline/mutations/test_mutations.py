"""Single faults in records of valid journals, with checksums made right again, are found each time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import pytest

from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline.chain import Head
from escrowmq.pipeline.planning import plan
from tests.pipeline.direct import audited, head_of
from tests.pipeline.mutations.faults import FAULTS as OTHERS
from tests.pipeline.mutations.faults import ONLY_SINCE_AN_AUDIT, SINCE_AN_AUDIT
from tests.pipeline.mutations.named import NAMED
from tests.pipeline.mutations.rewriting import Copy, read
from tests.pipeline.mutations.sources import INCOMPLETE, SOURCES

FAULTS = OTHERS | NAMED
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


@pytest.fixture(scope="module")
def heads(journals: Mapping[str, Copy], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Head]:
    """Return the ends of the valid journals, as an audit has seen them."""
    found = {}
    for name, journal in journals.items():
        folder = tmp_path_factory.mktemp("journal")
        journal.write(folder)
        _, head, _ = head_of(folder)
        assert head is not None
        found[name] = head
    return found


def _planted(journals: Mapping[str, Copy], fault: str, places: int) -> Iterator[tuple[str, Copy]]:
    plant, kinds = (FAULTS | SINCE_AN_AUDIT)[fault]
    for name, journal in journals.items():
        if name in INCOMPLETE and Kind.REMOVED not in kinds:
            continue
        for changed in islice(plant(journal, random.Random(fault)), places):
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


def test_every_kind_of_record_has_a_fault() -> None:
    """A new kind of record needs faults in FAULTS."""
    judged = {Kind(kind) for fault in FAULTS.values() for kind in fault.kinds}
    assert judged.isdisjoint(ONLY_SINCE_AN_AUDIT)
    assert judged | ONLY_SINCE_AN_AUDIT == set(Kind)


@pytest.mark.rule("PIPE-8")
@pytest.mark.parametrize("fault", SINCE_AN_AUDIT)
def test_a_change_since_the_last_audit_is_found(
    fault: str, journals: Mapping[str, Copy], heads: Mapping[str, Head], tmp_path: Path
) -> None:
    """The digests of all segments are right again, but the last audit has stored another one."""
    planted = 0
    for name, changed in _planted(journals, fault, PLACES):
        changed.write(tmp_path / "journal")
        head = heads[name]
        wrong, _, _ = head_of(tmp_path / "journal", head)
        shorter = plan(tmp_path / "journal").end < head.lsn  # which is a violation of its own
        assert shorter or [each.rule.name for each in wrong] == ["log changed"], f"not found in {name}"
        planted += 1
    assert planted


def test_the_log_may_grow_between_audits(journals: Mapping[str, Copy], tmp_path: Path) -> None:
    for journal in journals.values():
        head = None
        for end in range(1, len(journal.frames) + 1):
            Copy(journal.journal_id, journal.frames[:end], []).write(tmp_path)
            wrong, head, proved = head_of(tmp_path, head)
            assert wrong == []
            assert proved


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
