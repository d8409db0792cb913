"""The order of password checks."""

from __future__ import annotations

import pytest

from escrowmq.server.checks import EVERY, SUSPECT_SECONDS, Check, Checks


class Desk:
    """Checks by name, and the abandoned ones."""

    def __init__(self) -> None:
        self.now = 0.0
        self.checks = Checks(lambda: self.now)
        self.given_up: list[str] = []
        self.gone: set[str] = set()

    def put(self, address: str, name: str, patience: float = 10.0) -> None:
        def work() -> None:
            raise AssertionError(name)

        def give_up() -> None:
            self.given_up.append(name)

        self.checks.put(address, Check(self.now + patience, work, give_up, lambda: name not in self.gone))

    def next(self) -> str | None:
        """Return the name of the next check."""
        check = self.checks.next()
        if check is None:
            return None
        with pytest.raises(AssertionError) as raised:
            check.work()
        return str(raised.value)


def test_addresses_take_turns() -> None:
    desk = Desk()
    for name in ("a1", "a2", "a3", "b1"):
        desk.put(name[0], name)
    assert [desk.next() for _ in range(5)] == ["a1", "b1", "a2", "a3", None]


@pytest.mark.rule("FAIR-3", "SEC-4")
def test_addresses_with_wrong_logins_wait_behind_the_others_but_not_for_ever() -> None:
    desk = Desk()
    for i in range(1000):
        desk.checks.judged(f"bad{i}", right=False)
        desk.put(f"bad{i}", f"flood {i}")
    for i in range(5):
        desk.put(f"good{i}", f"right {i}")
    found = [desk.next() for _ in range(EVERY + 3)]
    assert [name for name in found if name and name.startswith("right")] == [f"right {i}" for i in range(5)]
    assert found[EVERY - 1] == "flood 0"


def test_a_wrong_login_is_forgotten_after_a_while_or_by_a_right_one() -> None:
    desk = Desk()
    desk.checks.judged("a", right=False)
    desk.checks.judged("b", right=False)
    desk.checks.judged("b", right=True)
    desk.put("a", "a1")
    desk.put("b", "b1")
    assert [desk.next(), desk.next()] == ["b1", "a1"]
    desk.now += SUSPECT_SECONDS
    desk.put("a", "a2")
    desk.put("c", "c1")
    assert [desk.next(), desk.next()] == ["a2", "c1"]


def test_disconnected_clients_are_not_checked() -> None:
    desk = Desk()
    desk.put("a", "gone")
    desk.put("a", "late", patience=1)
    desk.put("a", "there")
    desk.gone.add("gone")
    desk.now += 2
    assert desk.next() == "there"
    assert desk.given_up == ["gone", "late"]


@pytest.mark.rule("FAIR-2")
def test_clients_that_connect_and_leave_all_the_time_do_not_pile_up() -> None:
    desk = Desk()
    longest = 0
    for i in range(10_000):
        desk.put(str(i % 7), f"c{i}")
        desk.gone.add(f"c{i}")
        longest = max(longest, len(desk.checks))
    assert longest <= 1001
