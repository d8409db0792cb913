"""The states of a terminus, cell by cell."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.termini.terminus import (
    EXPIRES_AFTER,
    TRANSITIONS,
    Durability,
    ExpiryPolicy,
    Terminus,
    TerminusInput,
    TerminusSettings,
    TerminusState,
)
from tests.unit.core.site import Site
from tests.unit.core.termini.links import outgoing

ATTACHED, SUSPENDED, GONE = TerminusState.ATTACHED, TerminusState.SUSPENDED, TerminusState.GONE

EXPECTED = {
    #                               GONE      ATTACHED   SUSPENDED
    TerminusInput.ESTABLISH:       (ATTACHED, None,      ATTACHED),
    TerminusInput.RESUME:          (ATTACHED, None,      ATTACHED),
    TerminusInput.RECOVER:         (None,     None,      ATTACHED),
    TerminusInput.STEAL:           (None,     SUSPENDED, None),
    TerminusInput.DETACH:          (None,     SUSPENDED, None),
    TerminusInput.CLOSE:           (None,     GONE,      None),
    TerminusInput.CONNECTION_LOST: (None,     SUSPENDED, SUSPENDED),
    TerminusInput.SESSION_ENDED:   (None,     SUSPENDED, SUSPENDED),
    TerminusInput.EXPIRE:          (None,     GONE,      GONE),
}  # fmt: skip


def terminus(settings: TerminusSettings | None = None, number: int = 0) -> Terminus:
    return Terminus(Site().broker.engine, outgoing(), settings or TerminusSettings(), "u", number)


def test_the_table_has_every_input() -> None:
    assert EXPECTED.keys() == set(TerminusInput)
    assert TRANSITIONS.keys() == set(TerminusState)


@pytest.mark.parametrize("given", TerminusInput)
@pytest.mark.parametrize(("column", "state"), list(enumerate((GONE, ATTACHED, SUSPENDED))))
def test_each_cell(given: TerminusInput, column: int, state: TerminusState) -> None:
    tested, expected = terminus(), EXPECTED[given][column]
    tested.state = state
    if expected is not None:
        assert tested.step(given) is tested.state is expected
        return
    with pytest.raises(BrokerError, match="link 'l' of container 'c' in vhost '/' is") as refused:
        tested.step(given)
    assert refused.value.condition is Condition.ILLEGAL_STATE
    assert tested.state is state


def test_a_policy_starts_the_timeout_at_its_condition_and_at_everything_that_includes_it() -> None:
    order = [TerminusInput.DETACH, TerminusInput.SESSION_ENDED, TerminusInput.CONNECTION_LOST]
    assert [EXPIRES_AFTER[policy] for policy in ExpiryPolicy] == [set(order[i:]) for i in range(4)]


@pytest.mark.parametrize(
    ("durability", "second", "number", "expected"),
    [
        (Durability.UNSETTLED_STATE, True, 1, True),
        (Durability.UNSETTLED_STATE, False, 1, False),
        (Durability.CONFIGURATION, True, 1, False),
        (Durability.UNSETTLED_STATE, True, 0, False),
    ],
)
def test_unsettled_deliveries_are_kept_in_the_log_if_the_receiver_settles_second(
    durability: Durability, second: bool, number: int, expected: bool
) -> None:
    assert terminus(TerminusSettings(durability, second=second), number).keeps is expected


def test_a_terminus_is_named_in_error_texts() -> None:
    tested = terminus()
    assert tested.title == "link 'l' of container 'c'"
    assert repr(tested) == "<Terminus /:c:l:outgoing>"
