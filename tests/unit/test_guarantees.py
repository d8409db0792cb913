"""tools/guarantees.py finds rules and marks, refuses gaps, and lists the tests of each rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import guarantees

SEMANTICS = """---
finished: TX
---
## TX: transactions

| ID | Rule |
|---|---|
| TX-1 | Select | twice |
| TX-2 | Commit. |

## SET: settlement

| ID | Rule |
|---|---|
| SET-1 | Presettled. |
"""


def repository(root: Path, test: str, semantics: str = SEMANTICS) -> Path:
    (root / "docs").mkdir()
    (root / "docs" / "semantics.md").write_text(semantics)
    (root / "tests" / "unit").mkdir(parents=True)
    (root / "tests" / "unit" / "test_it.py").write_text(test)
    return root


def rules_of(source: str) -> list[tuple[str, str]]:
    return [(mark.rule, mark.test) for mark in guarantees.marks_in(source, "tests/unit/test_it.py")]


def test_rules_are_read_in_order_with_their_area() -> None:
    transactions, settlement = guarantees.read_rules(SEMANTICS)
    assert (transactions.name, transactions.title, transactions.finished) == ("TX", "transactions", True)
    assert transactions.rules == {"TX-1": "Select | twice", "TX-2": "Commit."}
    assert not settlement.finished


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(SEMANTICS + "| TX-3 | Late. |\n", id="under the wrong heading"),
        pytest.param(SEMANTICS + "| SET-1 | Again. |\n", id="twice"),
        pytest.param(SEMANTICS.replace("finished: TX", "finished: TX NOPE"), id="area without a chapter"),
    ],
)
def test_a_page_that_contradicts_itself_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"docs/semantics\.md"):
        guarantees.read_rules(page)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@pytest.mark.rule('TX-1')\ndef test_a(): ...", [("TX-1", "test_a")]),
        ("@pytest.mark.rule('TX-1')\n@pytest.mark.slow\nasync def test_a(): ...", [("TX-1", "test_a")]),
        ("@pytest.mark.rule('TX-1', 'TX-2')\ndef test_a(): ...", [("TX-1", "test_a"), ("TX-2", "test_a")]),
        ("class TestA:\n  @pytest.mark.rule('TX-2')\n  def test_b(self): ...", [("TX-2", "TestA.test_b")]),
        ("@pytest.mark.rule('TX-1')\nclass TestA: ...", [("TX-1", "TestA")]),
        ("pytestmark = [pytest.mark.slow, pytest.mark.rule('SET-1')]", [("SET-1", "(all)")]),
        ("def test_a(x=pytest.param(1, marks=pytest.mark.rule('TX-1'))): ...", [("TX-1", "test_a")]),
        ("# pytest.mark.rule('TX-1')\n@rule('TX-2')\ndef test_a(): ...", []),
    ],
)
def test_marks_are_found_wherever_pytest_sees_them(source: str, expected: list[tuple[str, str]]) -> None:
    assert sorted(rules_of(source)) == sorted(expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("@pytest.mark.rule(RULE)\ndef test_a(): ...", "literal"),
        ("@pytest.mark.rule()\ndef test_a(): ...", "without a rule"),
        ("@pytest.mark.rule('TX-1')\ndef helper(): ...", "helper has a rule mark"),
    ],
)
def test_marks_that_would_count_for_nothing_are_refused(source: str, message: str) -> None:
    with pytest.raises(guarantees.MarkError, match=message):
        rules_of(source)


def test_check_passes_when_every_finished_rule_is_tested_and_the_page_is_fresh(tmp_path: Path) -> None:
    root = repository(tmp_path, "@pytest.mark.rule('TX-1', 'TX-2')\ndef test_a(): ...")
    assert guarantees.main([], root) == 0
    assert guarantees.main(["--check"], root) == 0
    page = (root / "docs" / "guarantees.md").read_text()
    assert "| TX-2 | tested | 1 unit | Commit. |" in page
    assert "| SET-1 | planned | – | Presettled. |" in page
    assert "- TX-1: [unit/test_it.py](../tests/unit/test_it.py) `test_a`" in page


def test_check_names_the_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = repository(tmp_path, "@pytest.mark.rule('TX-1')\n@pytest.mark.rule('TX-9')\ndef test_a(): ...")
    assert guarantees.main(["--check"], root) == 1
    errors = capsys.readouterr().err.splitlines()
    assert errors == [
        "guarantees: tests/unit/test_it.py:2: test_a names rule TX-9, which docs/semantics.md does not have",
        "guarantees: area TX is finished, but no test shows TX-2",
        "docs/guarantees.md is stale; run: make docs",
    ]


def test_the_page_says_that_a_finished_rule_has_no_test() -> None:
    page = guarantees.render(guarantees.read_rules(SEMANTICS), [])
    assert "| TX-1 | **no test** | – | Select | twice |" in page
    assert "| TX: transactions | 2 | 0 | **gaps** |" in page
