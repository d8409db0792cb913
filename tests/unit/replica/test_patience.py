"""When a standby claims: the leader's silence, resignations, and times at which the standby itself did not look."""

from __future__ import annotations

from escrowmq.replica.patience import LeasePatience


def looks(patience: LeasePatience, *times: float, counted: int = 1, led: bool = True, resigned: bool = False) -> bool:
    """Look at these times, and return the last answer."""
    return [patience.is_over(now, counted, led=led, resigned=resigned) for now in times][-1]


def seconds(begin: float, end: float) -> list[float]:
    """Return times half a second apart."""
    return [begin + i / 2 for i in range(int((end - begin) * 2) + 1)]


def test_a_silent_leader_is_waited_for_as_long_as_its_lease() -> None:
    patience = LeasePatience(3, 0)
    assert not looks(patience, *seconds(0, 2.5))
    assert looks(patience, 3)


def test_each_sign_of_the_leader_begins_a_new_lease() -> None:
    patience = LeasePatience(3, 0)
    looks(patience, *seconds(0, 2.5), counted=1)
    assert not looks(patience, *seconds(3, 5.5), counted=2)
    assert looks(patience, 6, counted=2)


def test_a_log_that_nobody_has_led_is_claimed_at_once() -> None:
    assert looks(LeasePatience(3, 0), 0, counted=0, led=False)


def test_a_resignation_is_acted_upon_at_once_if_it_was_seen_coming() -> None:
    patience = LeasePatience(3, 0)
    looks(patience, 0.1)
    assert looks(patience, 0.2, counted=2, resigned=True)


def test_a_resignation_from_before_the_start_may_be_one_s_own_and_is_waited_for() -> None:
    patience = LeasePatience(3, 0)
    assert not looks(patience, *seconds(0, 2.5), resigned=True)
    assert looks(patience, 3, resigned=True)


def test_a_standby_that_was_stopped_itself_waits_again() -> None:
    patience = LeasePatience(3, 0)
    looks(patience, 0, 0.5)
    assert not looks(patience, 60)
    assert not looks(patience, *seconds(60.5, 62.5))
    assert looks(patience, 63)


def test_after_an_interruption_a_whole_lease_is_waited_for() -> None:
    patience = LeasePatience(3, 0)
    looks(patience, *seconds(0, 2.5))
    patience.begin_again(2.6)
    assert not looks(patience, *seconds(3, 5.5))
    assert looks(patience, 5.7)
