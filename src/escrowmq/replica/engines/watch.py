"""Watches the settings of the log, which an administrator of the engine may change at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from escrowmq.replica.engines.settings import WrongSetting

INTERVAL_SECONDS: Final = 60.0


class CheckedLog(Protocol):
    """A log whose settings can be checked."""

    def check(self) -> list[WrongSetting]:
        """Return the settings that are wrong now, or raise OSError."""
        ...


class SettingsWatch:
    """A thread that checks the settings once a minute.

    It calls `alarm` with the settings that are wrong whenever they have changed, and with none once they are right
    again. An engine that does not answer is left to those who append to it.
    """

    def __init__(
        self,
        log: CheckedLog,
        alarm: Callable[[tuple[WrongSetting, ...]], None],
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._log = log
        self._alarm = alarm
        self._interval = interval
        self._wrong: tuple[WrongSetting, ...] = ()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replication-settings", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                wrong = tuple(self._log.check())
            except OSError:
                continue
            if wrong != self._wrong and not self._stopped.is_set():
                self._wrong = wrong
                self._alarm(wrong)
