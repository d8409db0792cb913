"""Every input in every state of a half message."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.half.state import TABLE, HalfInput, HalfState, after

PENDING, PARKED, COMMITTED, ROLLED_BACK = HalfState
REFUSED = None
EXPECTED: dict[HalfInput, tuple[HalfState | None, ...]] = {
    # the state after the input:   PENDING,     PARKED,      COMMITTED, ROLLED_BACK
    HalfInput.COMMIT: (COMMITTED, REFUSED, COMMITTED, REFUSED),
    HalfInput.ROLL_BACK: (ROLLED_BACK, REFUSED, REFUSED, ROLLED_BACK),
    HalfInput.UNKNOWN: (PENDING, PARKED, COMMITTED, ROLLED_BACK),
    HalfInput.CHECK: (PENDING, REFUSED, REFUSED, REFUSED),
    HalfInput.EXHAUST: (PARKED, REFUSED, REFUSED, REFUSED),
    HalfInput.RESUME: (REFUSED, PENDING, REFUSED, REFUSED),
    HalfInput.FORCE_COMMIT: (COMMITTED, COMMITTED, COMMITTED, REFUSED),
    HalfInput.DROP: (ROLLED_BACK, ROLLED_BACK, REFUSED, ROLLED_BACK),
}


@pytest.mark.rule("HALF-3")
@pytest.mark.parametrize("given", HalfInput)
@pytest.mark.parametrize("state", HalfState)
def test_every_input_has_its_effect_in_every_state(state: HalfState, given: HalfInput) -> None:
    expected = EXPECTED[given][state - 1]
    assert TABLE.get((state, given)) is expected
    if expected is not None:
        assert after(state, given, "half message 1") is expected
        return
    with pytest.raises(BrokerError, match=f"cannot {given.title} half message 1, which is {state.title}") as caught:
        after(state, given, "half message 1")
    assert caught.value.condition is Condition.ILLEGAL_STATE


@pytest.mark.rule("HALF-6")
def test_the_refusal_of_a_late_decision_says_who_decides_a_parked_message() -> None:
    with pytest.raises(BrokerError, match="only an operator decides it"):
        after(PARKED, HalfInput.COMMIT, "half message 1")


def test_only_committed_and_rolled_back_are_final() -> None:
    assert [state for state in HalfState if state.decided] == [COMMITTED, ROLLED_BACK]
