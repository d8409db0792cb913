"""An operation is tried again while the broker cannot be reached, until its deadline (PIPE-7)."""

from __future__ import annotations

import pytest

from escrowmq.spark import reconnect
from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import BrokerUnavailableError
from escrowmq.spark.reconnect import RetryDeadline, persistent

ENDPOINT = Endpoint(url="amqp://127.0.0.1:1/")
PASSING = BrokerUnavailableError("127.0.0.1:1: connection refused", passing=True)


class Clock:
    """Replaces the time: sleeping advances it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        monkeypatch.setattr(reconnect, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Driver:
    def __init__(self, seconds: int, failures: int, error: BrokerUnavailableError = PASSING) -> None:
        self.retry = RetryDeadline(ENDPOINT, "driver", seconds)
        self.failures = failures
        self.error = error
        self.calls = 0

    @persistent
    def plan(self, number: int, *, twice: bool = False) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return number * 2 if twice else number


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_an_operation_is_repeated_until_it_succeeds(clock: Clock) -> None:
    driver = Driver(60, 3)
    assert driver.plan(21, twice=True) == 42
    assert driver.calls == 4


def test_pauses_grow_up_to_a_limit(clock: Clock) -> None:
    Driver(1000, 12).plan(1)
    for pause, most in zip(clock.pauses, (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5, 5, 5), strict=True):
        assert most / 2 <= pause <= most


def test_the_deadline_ends_the_attempts_with_one_line(clock: Clock) -> None:
    with pytest.raises(BrokerUnavailableError) as caught:
        Driver(7, 1000).plan(1)
    assert str(caught.value) == f"{PASSING}; the broker was unavailable for 7 s (option reconnectTimeout)"
    assert clock.now == pytest.approx(107)


def test_the_deadline_begins_anew_after_a_success(clock: Clock) -> None:
    retry = RetryDeadline(ENDPOINT, "source", 10)
    for _ in range(5):
        retry.failed(PASSING)
        clock.now += 8
        retry.succeeded()
    assert clock.now > 140


@pytest.mark.parametrize(("seconds", "error"), [(0, PASSING), (60, BrokerUnavailableError("the login is refused"))])
def test_some_failures_are_final(clock: Clock, seconds: int, error: BrokerUnavailableError) -> None:
    with pytest.raises(BrokerUnavailableError) as caught:
        Driver(seconds, 1, error).plan(1)
    assert caught.value is error
    assert clock.pauses == []
