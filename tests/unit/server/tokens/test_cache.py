"""When the keys are read again."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from escrowmq.server.tokens.cache import ASKED_SECONDS, GIVEN_UP_SECONDS, LONGEST_WAIT, KeyCache
from escrowmq.server.tokens.keys import KeysFault
from tests.tokens import key_set


class Alarm:
    """One timer."""

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Scene:
    """A cache with a clock and threads of the test. `body` is what the source has: keys, or a fault."""

    def __init__(self) -> None:
        self.now = 0.0
        self.body: bytes | Exception = key_set("one")
        self.work: list[Callable[[], None]] = []
        self.alarms: list[Alarm] = []
        self.cache = KeyCache(
            self.read,
            "the source",
            self.start,
            lambda call: call(),
            self.later,
            lambda: self.now,
            300.0,
        )

    def start(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def read(self) -> bytes:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body

    def later(self, seconds: float, call: Callable[[], None]) -> Alarm:
        self.alarms.append(Alarm(self.now + seconds, call))
        return self.alarms[-1]

    def run(self) -> int:
        """Do the work of the threads."""
        work, self.work = self.work, []
        for each in work:
            each()
        return len(work)

    @property
    def next_alarm(self) -> Alarm:
        (found,) = (each for each in self.alarms if not each.cancelled and each.at >= self.now)
        return found

    def ring(self) -> float:
        """Advance to the next alarm. Return the time that passed."""
        alarm = self.next_alarm
        self.alarms.remove(alarm)
        passed, self.now = alarm.at - self.now, alarm.at
        alarm.call()
        return passed

    @property
    def ids(self) -> list[str | None]:
        return [each.id for each in self.cache.keys]


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.cache.refresh()
    made.run()
    return made


def test_keys_are_read_again_after_the_interval(scene: Scene) -> None:
    assert (scene.ids, scene.cache.version, scene.cache.fault) == (["one"], 1, "")
    scene.body = key_set("two")
    assert scene.ring() == 300
    scene.run()
    assert (scene.ids, scene.cache.version) == (["two"], 2)


def test_the_same_keys_are_no_new_version(scene: Scene) -> None:
    scene.cache.refresh()
    scene.run()
    assert scene.cache.version == 1


def test_after_a_failure_the_former_keys_stay_and_the_waits_grow(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.body = KeysFault("the server is gone")
    scene.cache.refresh()
    waits = []
    for _ in range(9):
        scene.run()
        waits.append(scene.ring())
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    assert (scene.ids, scene.cache.fault) == (["one"], "the server is gone")
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        "the keys for tokens cannot be read from the source: the server is gone; the 1 former ones stay in use"
    ], "told once"
    scene.body = key_set("one")
    scene.run()
    assert (scene.cache.fault, scene.ring()) == ("", 300)


def test_a_fault_of_a_library_is_a_failure(scene: Scene) -> None:
    scene.body = RuntimeError("x")
    scene.cache.refresh()
    scene.run()
    assert scene.cache.fault == "RuntimeError('x')"


def test_an_unknown_key_is_asked_for_once_in_a_while(scene: Scene) -> None:
    told: list[int] = []
    assert scene.cache.ask(lambda: told.append(1))
    assert scene.cache.ask(lambda: told.append(2)), "the keys are being read"
    assert (scene.run(), told) == (1, [1, 2])
    assert not scene.cache.ask(lambda: told.append(3))
    scene.now += ASKED_SECONDS
    assert scene.cache.ask(lambda: told.append(4))
    scene.run()
    assert told == [1, 2, 4]


def test_who_asks_during_the_first_reading_waits_for_it() -> None:
    scene = Scene()
    scene.cache.refresh()
    told: list[int] = []
    assert scene.cache.ask(lambda: told.append(1))
    assert scene.run() == 1
    assert (told, scene.ids) == ([1], ["one"])


def test_a_request_during_a_reading_causes_another_one() -> None:
    scene = Scene()
    scene.cache.refresh()
    scene.cache.refresh()
    scene.cache.refresh()
    assert [scene.run(), scene.run(), scene.run()] == [1, 1, 0]


def test_a_reading_that_hangs_is_given_up(scene: Scene) -> None:
    scene.cache.refresh()
    told: list[int] = []
    scene.cache.ask(lambda: told.append(1))
    assert scene.ring() == GIVEN_UP_SECONDS
    assert (told, scene.cache.fault) == ([1], "it took too long")
    assert scene.ring() == 1
    assert scene.run() == 2, "the one that hung, and the next"
    assert scene.cache.fault == ""


def test_nothing_is_read_after_the_end(scene: Scene) -> None:
    scene.cache.refresh()
    scene.cache.stop()
    scene.body = key_set("two")
    scene.run()
    assert scene.ids == ["one"]
    assert all(alarm.cancelled for alarm in scene.alarms)
