"""docs/internals/branches.md is fresh and has a cell for every state and input."""

from __future__ import annotations

from escrowmq.core.branches.association import Association, Demarcation
from escrowmq.core.branches.branch import TRANSITIONS, Input, State
from tests.unit.sources import ROOT
from tools import branches

PAGE = ROOT / "docs" / "internals" / "branches.md"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == branches.render()
    assert branches.main(["--check"]) == 0


def test_the_tables_have_a_cell_for_everything() -> None:
    for text, states, inputs in (
        (branches.branch_table(), State, Input),
        (branches.association_table(), Association, Demarcation),
    ):
        rows = text.splitlines()
        assert len(rows) == len(states) + 2
        assert all(line.count("|") == len(inputs) + 2 for line in rows)


def test_every_change_of_state_is_in_the_picture() -> None:
    for before, inputs in TRANSITIONS.items():
        for after in {*inputs.values()} - {before}:
            assert f"    {before.name} --> {after.name}: " in branches.diagram()
