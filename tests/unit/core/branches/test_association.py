"""The association table, cell by cell."""

from __future__ import annotations

import itertools

import pytest

from escrowmq.core.branches.association import ASSOCIATIONS, Association, Demarcation, associated
from escrowmq.core.conditions import BrokerError, Condition

N, A, S, E = Association.NOT_ASSOCIATED, Association.ACTIVE, Association.SUSPENDED, Association.ENDED
UNKNOWN, INVALID = Condition.NOT_FOUND, Condition.COMMAND_INVALID
STATE, KNOWN = Condition.ILLEGAL_STATE, Condition.NOT_ALLOWED

# One row for each state. Columns: start, join, resume, end, fail, suspend, close.
TABLE: dict[Association, tuple[Association | Condition, ...]] = {
    N: (A, A, INVALID, UNKNOWN, UNKNOWN, UNKNOWN, N),
    A: (KNOWN, INVALID, INVALID, E, E, S, N),
    S: (KNOWN, A, A, STATE, STATE, STATE, N),
    E: (KNOWN, A, INVALID, UNKNOWN, UNKNOWN, UNKNOWN, N),
}


def test_the_table_has_a_cell_for_every_state_and_input() -> None:
    assert set(ASSOCIATIONS) == set(TABLE) == set(Association)
    assert all(set(row) == set(Demarcation) for row in ASSOCIATIONS.values())


@pytest.mark.rule("DTX-2", "DTX-3", "DTX-5")
@pytest.mark.parametrize(("before", "given"), list(itertools.product(Association, Demarcation)))
def test_every_cell(before: Association, given: Demarcation) -> None:
    expected = TABLE[before][list(Demarcation).index(given)]
    if isinstance(expected, Association):
        assert associated(before, given, "1:00:00") is expected
        return
    with pytest.raises(BrokerError) as refused:
        associated(before, given, "1:00:00")
    assert refused.value.condition is expected
    assert "1:00:00" in refused.value.text
