"""The watch over settings tells changes, and only those."""

from __future__ import annotations

import queue

from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.engines.watch import SettingsWatch

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
