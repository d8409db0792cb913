"""Try again, with back-off and under a deadline, while the broker cannot be reached (PIPE-7).

Every operation that is tried again has the same effect once as twice: reservations and settlements are requests "up to
a number", an epoch is decided once, and a task that writes publishes in new branches what is not surely prepared.
"""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar, cast

from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import BrokerUnavailableError
from escrowmq.spark.pool import drop

_FIRST_SECONDS: Final = 0.1
_MOST_SECONDS: Final = 5.0
_log: Final = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class RetryDeadline:
    """Decides whether one operation is tried again. The deadline begins with the first failure.

    Args:
        endpoint: the source of the broker's URL.
        role: the purpose of the connection.
        seconds: how long to try; 0 to fail at once.
    """

    def __init__(self, endpoint: Endpoint, role: str, seconds: int) -> None:
        self._endpoint = endpoint
        self._role = role
        self._seconds = seconds
        self._since: float | None = None
        self._pause = _FIRST_SECONDS

    def succeeded(self) -> None:
        """Begin anew: the broker has answered since the last failure."""
        self._since, self._pause = None, _FIRST_SECONDS

    def failed(self, error: BrokerUnavailableError) -> None:
        """Drop the connection, and wait until the next attempt.

        Raises:
            BrokerUnavailableError: trying again is pointless, or the deadline has passed.
        """
        blocked = drop(self._endpoint, self._role)
        if not error.passing or blocked or not self._seconds:
            raise error
        now = time.monotonic()
        if self._since is None:
            self._since = now
            _log.warning("%s; trying again for %d s", error, self._seconds)
        left = self._since + self._seconds - now
        if left <= 0:
            text = f"{error}; the broker was unavailable for {self._seconds} s (option reconnectTimeout)"
            raise BrokerUnavailableError(text) from None
        # Many tasks lose the broker at the same time, and should not all return at the same time.
        time.sleep(min(self._pause * random.uniform(0.5, 1), left))  # noqa: S311 - not a secret
        self._pause = min(self._pause * 2, _MOST_SECONDS)


class _Driver(Protocol):
    """An object of the driver's that knows the broker, and for how long to look for it."""

    @property
    def retry(self) -> RetryDeadline: ...


D = TypeVar("D", bound=_Driver)


def persistent(method: Callable[Concatenate[D, P], R]) -> Callable[Concatenate[D, P], R]:
    """Let a method, which must be safe to repeat, run again while the broker cannot be reached."""

    @functools.wraps(method)
    def run(self: D, *args: P.args, **keywords: P.kwargs) -> R:
        retry = self.retry
        while True:
            try:
                return method(self, *args, **keywords)
            except BrokerUnavailableError as error:
                retry.failed(error)

    return cast("Callable[Concatenate[D, P], R]", run)
