"""Sessions end when they are closed, when nobody uses them, and when there are too many."""

from __future__ import annotations

import pytest

from escrowmq.console import sessions
from escrowmq.console.sessions import IDLE_SECONDS, Sessions


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_found_by_its_token_until_it_is_closed() -> None:
    made = Sessions(Clock())
    token, other = made.open("u", "p"), made.open("v", "q")
    found = made.find(token)
    assert found is not None
    assert (found.user, found.password) == ("u", "p")
    made.close(token)
    assert (made.find(token), made.find(""), made.find("x")) == (None, None, None)
    assert made.find(other) is not None


def test_tokens_differ_and_a_session_shows_no_secret() -> None:
    made = Sessions(Clock())
    first, second = made.find(made.open("u", "secret")), made.find(made.open("u", "secret"))
    assert first is not None
    assert second is not None
    assert first.form_token != second.form_token
    assert "secret" not in repr(first)
    assert first.form_token not in repr(first)


def test_an_idle_session_ends_and_a_used_one_does_not() -> None:
    clock = Clock()
    made = Sessions(clock)
    used, idle = made.open("u", "p"), made.open("u", "p")
    clock.now = IDLE_SECONDS - 1
    assert made.find(used) is not None
    clock.now = IDLE_SECONDS
    assert made.find(idle) is None
    assert made.find(used) is not None
    assert len(made) == 1


def test_the_longest_unused_session_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST", 2)
    made = Sessions(Clock())
    first, second = made.open("u", "p"), made.open("u", "p")
    assert made.find(first) is not None
    third = made.open("u", "p")
    assert [made.find(token) is not None for token in (first, second, third)] == [True, False, True]


@pytest.mark.rule("SEC-4")
@pytest.mark.parametrize("bearer", ["", "a token"])
def test_the_logins_of_one_user_do_not_end_the_sessions_of_others(bearer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST", 4)
    monkeypatch.setattr(sessions, "MOST_OF_USER", 2)
    made = Sessions(Clock())
    other = made.open("operator", "p")
    tokens = [made.open(f"u{number}" if bearer else "u", "p", bearer) for number in range(10)]
    assert made.find(other) is not None
    assert [made.find(token) is not None for token in tokens] == [False] * 8 + [True] * 2
