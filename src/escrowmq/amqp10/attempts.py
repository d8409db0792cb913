"""Which URL to try next, after which delay, and when to give up."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from escrowmq.amqp10.errors import AmqpError, ConnectionLost, ConnectionRefused, LoginRefused
from escrowmq.amqp10.parameters import Backoff, Parameters

_REFUSALS: Final = 20
"""The rounds after which a refused connection counts as refused for good, about a minute with the default back-off. A
refusal may pass: the broker counts a lost connection against the user's limit until it notices the loss."""


class Attempts:
    """One series of attempts to connect: all URLs in turn, and a delay before each further round.

    Without a back-off, each URL is tried once.
    """

    def __init__(self, targets: Sequence[Parameters], first: int, backoff: Backoff | None) -> None:
        self._targets = targets
        self._index = first
        self._backoff = backoff
        self._delays: Iterator[float] | None = None if backoff is None else backoff.delays(random.random)
        self._errors: list[AmqpError] = []

    @property
    def index(self) -> int:
        """The number of the URL that is tried now."""
        return self._index % len(self._targets)

    @property
    def target(self) -> Parameters:
        """The address that is tried now."""
        return self._targets[self.index]

    def failed(self, error: AmqpError) -> float:
        """Go on to the next URL. Returns the delay (s) before it is tried.

        Raises:
            ConnectionLost: There is no further attempt; or LoginRefused, if every URL refused the login in a row; or
                ConnectionRefused, if they keep refusing the connection.
        """
        self._errors.append(error)
        self._index += 1
        rounds = len(self._targets)
        if len(self._errors) % rounds:
            return 0.0
        if self._only(LoginRefused, rounds) or self._only(ConnectionRefused, rounds * _REFUSALS):
            raise error.again() from None
        delay = None if self._delays is None else next(self._delays, None)
        if delay is None:
            if len(self._errors) == 1 or self._only(ConnectionRefused, rounds):
                raise error.again() from None
            raise ConnectionLost(
                f"gave up after {len(self._errors)} attempts to connect: "
                + "; ".join(dict.fromkeys(str(each) for each in self._errors[-rounds:]))
            ) from None
        return delay

    def _only(self, kind: type[AmqpError], count: int) -> bool:
        """Whether the last `count` attempts have all failed in this way."""
        return len(self._errors) >= count and all(isinstance(each, kind) for each in self._errors[-count:])
