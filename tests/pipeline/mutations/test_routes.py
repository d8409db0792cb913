"""Messages that are not where their bindings led are found each time, for all types of exchange."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.pipeline.direct import routed
from tests.pipeline.mutations.rewriting import Copy, read
from tests.pipeline.mutations.routes import ROUTE_FAULTS
from tests.pipeline.mutations.sources import of_a_server
from tests.pipeline.routed_journals import of_routes

SOURCES = {"all types of exchange": of_routes, "server": of_a_server}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Return a journal whose messages took all kinds of routes."""
    folder = tmp_path_factory.mktemp("journal")
    of_routes(folder)
    return read(folder)


@pytest.mark.rule("PIPE-8")
@pytest.mark.parametrize("source", SOURCES)
def test_a_journal_without_a_fault_is_clean(source: str, tmp_path: Path) -> None:
    SOURCES[source](tmp_path)
    found = routed(tmp_path)
    assert found.wrong == []
    assert found.checked > 0
    assert found.untold == 0


@pytest.mark.rule("PIPE-8")
@pytest.mark.parametrize("fault", ROUTE_FAULTS)
def test_a_wrong_route_is_found_in_each_place(fault: str, journal: Copy, tmp_path: Path) -> None:
    planted = 0
    for changed in ROUTE_FAULTS[fault](journal, random.Random(fault)):
        changed.write(tmp_path)
        assert routed(tmp_path).wrong, f"not found in place {planted}"
        planted += 1
    assert planted


def test_a_share_of_the_records_is_the_same_in_each_run(tmp_path: Path) -> None:
    of_routes(tmp_path)
    whole, some = routed(tmp_path), routed(tmp_path, 0.3)
    assert some == routed(tmp_path, 0.3)
    assert 0 < some.checked < whole.checked
    assert routed(tmp_path, 0.0).checked == 0
