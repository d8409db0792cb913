"""The table of rights: every operation has a row, and every row can be enforced (SEC-1)."""

from __future__ import annotations

import pytest

from escrowmq.core.access.table import READS, TABLE, Object, Operation, Right

OWNED = {Object.BRANCH, Object.HALF, Object.PROGRESS, Object.RESERVATION}


@pytest.mark.rule("SEC-1")
def test_every_operation_has_a_row() -> None:
    assert TABLE.keys() == set(Operation)


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("operation", Operation)
def test_owned_objects_are_seen_or_decided_and_names_are_matched(operation: Operation) -> None:
    for need in TABLE[operation]:
        assert (need.object in OWNED) is (need.right in {Right.SEE, Right.DECIDE})


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("operation", [each for each in Operation if any(n.object is Object.KEY for n in TABLE[each])])
def test_a_routing_key_comes_with_its_exchange(operation: Operation) -> None:
    assert Object.EXCHANGE in {need.object for need in TABLE[operation]}


@pytest.mark.rule("SEC-1")
def test_the_operations_on_a_copy_need_the_same_rights_and_no_right_to_change_anything() -> None:
    for operation, needs in READS.items():
        assert needs == TABLE[operation]
        assert {need.right for need in needs} <= {Right.READ, Right.SEE, Right.ANY}
    assert Operation.CONSUME not in READS
    assert Operation.SETTLE not in READS
