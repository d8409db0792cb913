"""The short form of the soak: mixed load beside hostile neighbours, judged by the audit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.direct import audited
from tests.soak.histories import check_found
from tests.soak.load import Soak


@pytest.mark.slow
@pytest.mark.rule("FAIR-2")
@pytest.mark.rule("TX-8")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pika leaves sockets open
def test_a_short_soak(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=1, size=20, report=lambda _: None)
    soak.run(4, 2)
    found = audited(soak.data_dir)
    assert found.wrong == []
    assert {"committed", "rolled back"} <= {row["outcome"] for row in found.branches}


def test_a_planted_bug_that_no_history_finds_is_a_failure() -> None:
    lines: list[str] = []
    check_found("a bug", 9, iter([4, 7]), lines.append)
    assert lines == ["planted: a bug: found by 2 of 9 histories, first by that of seed 4"]
    with pytest.raises(AssertionError, match="no history of 9 has found: a bug"):
        check_found("a bug", 9, iter([]), lines.append)


def test_memory_that_grows_is_found(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=1, size=1, report=lambda _: None)
    soak.resident = [(100 + 3 * i) << 20 for i in range(30)]
    with pytest.raises(AssertionError, match="memory has grown"):
        soak.check_memory()
    soak.resident = [60 << 20, 90 << 20, *[100 << 20, 104 << 20] * 10]
    soak.check_memory()
