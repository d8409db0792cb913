"""The keys of the issuer in memory, and when they are read again.

They are read at the start, in regular intervals, on request (SIGHUP), and when a token names an unknown key, because
the issuer may have a new one. If that fails, the last keys stay in use, and the next attempts follow with growing
waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from escrowmq.server.tokens.keys import IssuerKey, KeysFault, parsed
from escrowmq.server.tokens.source import Source

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""Seconds from a failed attempt to the next one: the first wait, which doubles with each further failure, and the
longest.
"""
ASKED_SECONDS: Final = 10.0
"""The least time between two attempts for unknown keys, because anybody can name unknown keys."""
GIVEN_UP_SECONDS: Final = 90.0
"""An attempt that has not ended after this time, in spite of its timeouts, counts as failed. Its thread may still hang.
"""

_log = logging.getLogger("escrowmq.auth")


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Do not make it."""


class KeyCache:
    """The keys. All methods are called in turns of the event loop."""

    def __init__(
        self,
        source: Source,
        name: str,
        start_thread: Callable[[Callable[[], None]], None],
        post: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], Timer],
        clock: Callable[[], float],
        refresh_seconds: float,
    ) -> None:
        """`name` is the file or URL. `start_thread` runs a function on another thread, from which `post` passes a call
        to a turn. `later` makes a call after some seconds of `clock`.
        """
        self.keys: tuple[IssuerKey, ...] = ()
        self.version = 0
        """Increases when the keys change."""
        self.fault = "not read yet"
        """Why the last attempt failed; empty if it did not."""
        self.read_at: float | None = None
        """When the present keys were read, by `clock`."""
        self.name = name
        self._source = source
        self._start_thread = start_thread
        self._post = post
        self._later = later
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._attempt = 0
        self._reading = False
        self._again = False
        self._failures = 0
        self._asked_at: float | None = None
        self._waiting: list[Callable[[], None]] = []
        self._timer: Timer | None = None

    def refresh(self) -> None:
        """Read the keys now, or once more if they are being read."""
        if self._reading:
            self._again = True
            return
        self._attempt += 1
        self._reading = True
        self._stop_timer()
        attempt = self._attempt
        self._timer = self._later(GIVEN_UP_SECONDS, partial(self._arrived, attempt, "it took too long"))
        self._start_thread(partial(self._read, attempt))

    def ask(self, done: Callable[[], None]) -> bool:
        """Read the keys because of an unknown one, and call `done` afterwards. Return False if they were asked for too
        recently; then nothing happens.
        """
        if not self._reading:
            now = self._clock()
            if self._asked_at is not None and now - self._asked_at < ASKED_SECONDS:
                return False
            self._asked_at = now
            self.refresh()
        self._waiting.append(done)
        return True

    def stop(self) -> None:
        """Read no more."""
        self._attempt += 1
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read(self, attempt: int) -> None:
        """Read the keys, on another thread."""
        found: tuple[IssuerKey, ...] | str
        try:
            found = parsed(self._source())
        except KeysFault as fault:
            found = str(fault)
        except Exception as error:  # noqa: BLE001 - a fault of a library must not end the attempts
            found = repr(error)
        self._post(partial(self._arrived, attempt, found))

    def _arrived(self, attempt: int, found: tuple[IssuerKey, ...] | str) -> None:
        if attempt != self._attempt or not self._reading:
            return
        self._reading = False
        self._stop_timer()
        if isinstance(found, str):
            self._failed(found)
        else:
            self._succeeded(found)
        if self._again:
            self._again = False
            self.refresh()
        else:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each()

    def _failed(self, fault: str) -> None:
        wait = min(FIRST_WAIT * 2**self._failures, LONGEST_WAIT, self._refresh_seconds)
        self._failures = min(self._failures + 1, 16)
        level = logging.ERROR if fault != self.fault else logging.DEBUG
        kept = f"; the {len(self.keys)} former ones stay in use" if self.keys else ""
        _log.log(level, "the keys for tokens cannot be read from %s: %s%s", self.name, fault, kept)
        self.fault = fault
        self._timer = self._later(wait, self.refresh)

    def _succeeded(self, keys: tuple[IssuerKey, ...]) -> None:
        if keys != self.keys or self.fault:
            _log.info("read %d keys for tokens from %s", len(keys), self.name)
        if keys != self.keys:
            self.keys = keys
            self.version += 1
        self.fault, self._failures, self.read_at = "", 0, self._clock()
        self._timer = self._later(self._refresh_seconds, self.refresh)
