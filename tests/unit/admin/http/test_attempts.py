"""Guessing passwords over HTTP is slow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.http import attempts
from escrowmq.admin.http.attempts import (
    DELAY_SECONDS,
    FREE,
    FREE_TOGETHER,
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
        right = "right" in {arguments.get("password"), arguments.get("token")}
        return {"user": "u" if right else None, "tags": [], "reason": ""}

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        await asyncio.sleep(0)

    def log_in(
        self, password: str = "wrong", address: str = "10.0.0.1", times: int = 1, user: str = "u", token: str = ""
    ) -> list[Any]:
        async def together() -> list[Any]:
            given = {"user": user, "password": password} if not token else {"token": token}
            command = "token.login" if token else "user.login"
            given |= {"address": address}
            return list(await asyncio.gather(*(self.guarded.ask(command, port=1, **given) for _ in range(times))))

        return asyncio.run(together())


@pytest.mark.rule("SEC-4")
def test_after_some_wrong_logins_the_answers_to_a_user_at_an_address_take_longer() -> None:
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
def test_a_suspect_user_at_an_address_has_few_checks_at_once() -> None:
    bench = Bench()
    bench.log_in(times=FREE)
    before = bench.checks
    answers = bench.log_in(times=10 * MOST_AT_ONCE)
    assert bench.checks - before == MOST_AT_ONCE
    assert answers.count(TOO_MANY) == 9 * MOST_AT_ONCE
    assert bench.log_in("right")[0]["user"] == "u", "the places are free again"


@pytest.mark.rule("SEC-4")
def test_wrong_tokens_of_an_address_are_counted() -> None:
    bench = Bench()
    bench.log_in(times=FREE, token="x")
    assert bench.delays == []
    bench.log_in(token="y")
    assert bench.delays == [DELAY_SECONDS]


def test_addresses_are_forgotten_and_other_operations_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "REMEMBERED", 6)
    bench = Bench()
    bench.log_in(times=FREE)
    for address in ("10.0.0.2", "10.0.0.3"):
        bench.log_in(address=address)
    bench.log_in()
    assert bench.delays == []
    assert asyncio.run(bench.guarded.ask("ping"))["user"] is None


def test_long_names_do_not_fill_the_memory() -> None:
    bench = Bench()
    bench.log_in(user="x" * 100_000)
    assert max(len(user) for user, _ in bench.guarded._wrong) == 256


def test_ipv6_hosts_are_counted_by_their_prefix() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::2%eth0") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("") == ""


def spread(bench: Bench, times: int, user: str = "u") -> None:
    """Guess from an address for each attempt."""
    for number in range(times):
        bench.log_in(address=f"10.1.{number // 200}.{number % 200}", user=user)


@pytest.mark.rule("SEC-4")
def test_guesses_at_a_user_from_many_addresses_are_slowed() -> None:
    bench = Bench()
    spread(bench, FREE_TOGETHER)
    assert bench.delays == []
    bench.log_in(address="10.9.9.9")
    assert bench.delays == [DELAY_SECONDS]
    bench.log_in(address="10.9.9.9", user="v")
    assert bench.delays == [DELAY_SECONDS], "another user has a count of its own"

    async def together() -> list[Any]:
        given = [{"user": "u", "password": "wrong", "address": f"10.2.0.{number}"} for number in range(50)]
        return list(await asyncio.gather(*(bench.guarded.ask("user.login", port=1, **each) for each in given)))

    before = bench.checks
    assert asyncio.run(together()).count(TOO_MANY) == 50 - MOST_AT_ONCE
    assert bench.checks - before == MOST_AT_ONCE


@pytest.mark.rule("SEC-4")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_operator_on_this_machine_is_not_slowed_by_guesses_from_elsewhere(address: str) -> None:
    bench = Bench()
    spread(bench, 2 * FREE_TOGETHER)
    bench.delays.clear()
    bench.log_in(address=address, times=FREE)
    assert bench.delays == []
    bench.log_in(address=address)
    assert bench.delays == [DELAY_SECONDS]


@pytest.mark.rule("SEC-4")
def test_guesses_at_many_users_from_an_address_are_slowed() -> None:
    bench = Bench()
    for number in range(FREE_TOGETHER + 1):
        bench.log_in(user=f"v{number}")
    assert bench.delays == [DELAY_SECONDS]


class Flood(Bench):
    """Guesses that never end are under way: everywhere but for the pair that is asked last."""

    async def ask(self, command: str, **arguments: Any) -> Any:
        if arguments.get("password") == "endless":
            await asyncio.Event().wait()
        return await super().ask(command, **arguments)

    def meanwhile(self, guesses: list[dict[str, str]], login: dict[str, str]) -> Any:
        """Return the answer to a login during guesses."""

        async def together() -> Any:
            tasks = [asyncio.create_task(self.guarded.ask("user.login", port=1, **each)) for each in guesses]
            await asyncio.sleep(0)
            answer = await self.guarded.ask("user.login", port=1, **login)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return answer

        return asyncio.run(together())


RIGHT = {"user": "u", "password": "right", "address": "10.0.0.1"}


@pytest.mark.rule("SEC-4")
@pytest.mark.parametrize("known", [False, True])
def test_a_user_is_not_locked_out_from_an_address_where_it_has_logged_in_before(known: bool) -> None:
    bench = Flood()
    if known:
        bench.log_in("right")
    spread(bench, 2 * FREE_TOGETHER)
    guesses = [{"user": "u", "password": "endless", "address": f"10.2.0.{number}"} for number in range(50)]
    assert (bench.meanwhile(guesses, RIGHT)["user"] == "u") is known


@pytest.mark.rule("SEC-4")
@pytest.mark.parametrize("known", [False, True])
def test_who_guesses_behind_the_same_proxy_does_not_lock_out_a_user_that_has_logged_in(known: bool) -> None:
    bench = Flood()
    if known:
        bench.log_in("right")
    for number in range(2 * FREE_TOGETHER):
        bench.log_in(user=f"v{number}")
    guesses = [{"user": f"v{number}", "password": "endless", "address": "10.0.0.1"} for number in range(50)]
    assert (bench.meanwhile(guesses, RIGHT)["user"] == "u") is known


@pytest.mark.rule("SEC-4")
def test_a_token_that_was_right_before_is_always_checked() -> None:
    bench = Flood()
    bench.log_in(token="right")
    bench.log_in(token="wrong", times=2 * FREE_TOGETHER)
    checking = asyncio.gather

    async def together() -> list[Any]:
        wrong = (bench.guarded.ask("token.login", port=1, address="10.0.0.1", token="wrong") for _ in range(50))
        right = bench.guarded.ask("token.login", port=1, address="10.0.0.1", token="right")
        return list(await checking(*wrong, right))

    assert asyncio.run(together())[-1]["user"] == "u"
