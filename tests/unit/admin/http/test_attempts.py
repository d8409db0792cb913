"""Guessing passwords over HTTP is slow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.http import attempts
from escrowmq.admin.http.attempts import (
    DELAY_SECONDS,
    FREE,
    MOST_AT_ONCE,
    TOO_MANY,
    WINDOW_SECONDS,
    GuardedBroker,
    network_of,
)


class Bench:
    """A guarded broker whose only right password is `right`, and a clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self.delays: list[float] = []
        self.checks = 0
        self.guarded = GuardedBroker(self, lambda: self.now, self.sleep)

    async def ask(self, command: str, **arguments: Any) -> Any:
        """See `AskedBroker.ask`."""
        self.checks += command == "user.login"
        await asyncio.sleep(0)
        return {"user": "u" if arguments.get("password") == "right" else None, "tags": [], "reason": ""}

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        await asyncio.sleep(0)

    def log_in(self, password: str = "wrong", address: str = "10.0.0.1", times: int = 1) -> list[Any]:
        async def together() -> list[Any]:
            given = {"address": address, "port": 1, "user": "u", "password": password}
            return list(await asyncio.gather(*(self.guarded.ask("user.login", **given) for _ in range(times))))

        return asyncio.run(together())


@pytest.mark.rule("SEC-4")
def test_after_some_wrong_logins_the_answers_of_an_address_take_longer() -> None:
    bench = Bench()
    for _ in range(FREE):
        bench.log_in()
    assert bench.delays == []
    bench.log_in()
    assert bench.delays == [DELAY_SECONDS]
    bench.log_in(address="10.0.0.2")
    assert bench.log_in("right")[0]["user"] == "u"
    assert bench.delays == [DELAY_SECONDS], "neither another address nor a right password is delayed"
    bench.now = WINDOW_SECONDS
    bench.log_in()
    assert bench.delays == [DELAY_SECONDS]


@pytest.mark.rule("SEC-4")
def test_a_suspect_address_has_few_checks_at_once() -> None:
    bench = Bench()
    bench.log_in(times=FREE)
    before = bench.checks
    answers = bench.log_in(times=10 * MOST_AT_ONCE)
    assert bench.checks - before == MOST_AT_ONCE
    assert answers.count(TOO_MANY) == 9 * MOST_AT_ONCE
    assert bench.log_in("right")[0]["user"] == "u", "the places are free again"


@pytest.mark.rule("SEC-4")
def test_wrong_tokens_count_as_wrong_passwords() -> None:
    bench = Bench()
    bench.log_in(times=FREE)
    asyncio.run(bench.guarded.ask("token.login", address="10.0.0.1", port=1, token="x"))
    assert bench.delays == [DELAY_SECONDS]


def test_addresses_are_forgotten_and_other_operations_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "ADDRESSES", 2)
    bench = Bench()
    bench.log_in(times=FREE)
    for address in ("10.0.0.2", "10.0.0.3"):
        bench.log_in(address=address)
    bench.log_in()
    assert bench.delays == []
    assert asyncio.run(bench.guarded.ask("ping"))["user"] is None


def test_ipv6_hosts_are_counted_by_their_prefix() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::2%eth0") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("") == ""
