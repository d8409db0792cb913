"""The watch over settings tells changes, and only those."""

from __future__ import annotations

import queue
import threading

from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.engines.watch import SettingsWatch
from tests.broker import wait_until

STATE = EngineState("Kafka", "kafka://h/t", 3, 2, "node 1")
FAULT = WrongSetting("the topic t", "retention.ms", "1", "-1")
PATIENCE = 30.0


class Script:
    """A log whose checks come from a list; the last one is repeated."""

    def __init__(self, *checks: list[WrongSetting] | OSError) -> None:
        self._checks = list(checks)

    def check(self) -> list[WrongSetting]:
        found = self._checks.pop(0) if len(self._checks) > 1 else self._checks[0]
        if isinstance(found, OSError):
            raise found
        return found

    def state(self) -> EngineState:
        return STATE


def test_an_alarm_is_given_and_ended_once() -> None:
    told: queue.Queue[tuple[WrongSetting, ...]] = queue.Queue()
    watch = SettingsWatch(Script([], [FAULT], [FAULT], OSError("gone"), []), told.put, interval=0.001)
    assert told.get(timeout=PATIENCE) == (FAULT,)
    assert told.get(timeout=PATIENCE) == ()
    watch.stop()
    assert told.empty()


def test_nothing_is_told_while_all_is_right() -> None:
    told: queue.Queue[tuple[WrongSetting, ...]] = queue.Queue()
    watch = SettingsWatch(Script([], [], OSError("gone"), [], [FAULT]), told.put, interval=0.001)
    assert told.get(timeout=PATIENCE) == (FAULT,)
    watch.stop()


def test_the_state_is_known_soon_and_with_it_that_an_engine_does_not_answer() -> None:
    class Silent(Script):
        """A log that answers once."""

        asked = 0

        def state(self) -> EngineState:
            self.asked += 1
            if self.asked > 1:
                raise OSError("no answer")
            return STATE

    watch = SettingsWatch(Silent([]), lambda _: None, state_interval=0.001)
    wait_until(lambda: bool(watch.view.fault))
    watch.stop()
    assert watch.view.state == STATE
    assert watch.view.fault == "no answer"
    assert watch.view.answered is not None


def test_an_engine_that_hangs_does_not_keep_a_node_from_handing_over() -> None:
    class Hanging(Script):
        """A log that answers when it is too late."""

        def state(self) -> EngineState:
            asked.set()
            late.wait(PATIENCE)
            return STATE

    asked, late = threading.Event(), threading.Event()
    watch = SettingsWatch(Hanging([]), lambda _: None)
    assert asked.wait(PATIENCE)
    watch.stop()
    assert not late.is_set()
    late.set()
