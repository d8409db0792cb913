"""Watches the log's engine: its replicas, and the settings, which an administrator of it may change at any time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.settings import WrongSetting

INTERVAL_SECONDS: Final = 60.0
STATE_SECONDS: Final = 5.0
_LEAVE_SECONDS: Final = 0.5


class CheckedLog(Protocol):
    """A log whose settings can be checked."""

    def check(self) -> list[WrongSetting]:
        """Return the settings that are wrong now, or raise OSError."""
        ...

    def state(self) -> EngineState:
        """Return the state of the replicas, or raise OSError."""
        ...


class EngineView(NamedTuple):
    """What is known of an engine. Times are those of `time.monotonic()`; None before the first answer."""

    state: EngineState | None = None
    answered: float | None = None
    fault: str = ""
    """Why the last question had no answer; empty if it had."""
    wrong: tuple[WrongSetting, ...] = ()
    checked: float | None = None
    """When the settings were checked."""


class SettingsWatch:
    """A thread that asks for the state every few seconds, and checks the settings once a minute.

    It calls `alarm` with the settings that are wrong whenever they have changed, and with none once they are right
    again. An engine that does not answer is left to those who append to it. Whoever starts the thread has checked the
    settings.
    """

    def __init__(
        self,
        log: CheckedLog,
        alarm: Callable[[tuple[WrongSetting, ...]], None],
        interval: float = INTERVAL_SECONDS,
        state_interval: float = STATE_SECONDS,
    ) -> None:
        self._log = log
        self._alarm = alarm
        self._interval = interval
        self._state_interval = min(interval, state_interval)
        self.view = EngineView(checked=time.monotonic())
        """Replaced by the thread."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replication-settings", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. A question that the engine does not answer is not waited for."""
        self._stopped.set()
        self._thread.join(_LEAVE_SECONDS)

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        wait = 0.0
        while not self._stopped.wait(wait):
            wait = self._state_interval
            try:
                state = self._log.state()
                self.view = self.view._replace(state=state, answered=time.monotonic(), fault="")
                if time.monotonic() < due:
                    continue
                wrong = tuple(self._log.check())
            except OSError as error:
                self.view = self.view._replace(fault=str(error))
                continue
            due = time.monotonic() + self._interval
            changed = wrong != self.view.wrong
            self.view = self.view._replace(wrong=wrong, checked=time.monotonic())
            if changed and not self._stopped.is_set():
                self._alarm(wrong)
