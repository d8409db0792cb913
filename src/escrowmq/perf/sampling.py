"""A check that some of the delivered messages are among the published ones."""

from __future__ import annotations

from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import STAMP_SIZE

SAMPLED_BYTES = 72
"""The number of bytes at the beginning of a body that are compared. The time is not one of them."""


class PublishedContents:
    """Fingerprints of all distinct messages of a run: their ids, the size and the beginning of their bodies.

    Checking every message would cost the load tool more than reading it, so a consumer checks only some of them.
    """

    __slots__ = ("_fingerprints", "checked", "enabled")

    def __init__(self) -> None:
        self._fingerprints: set[int] = set()
        self.enabled = True
        """False if the queues also hold messages from elsewhere."""
        self.checked = 0

    def add(self, message_id: str | None, correlation_id: str | None, body: bytes) -> None:
        """Note a message that may be published."""
        self._fingerprints.add(_fingerprint(message_id, correlation_id, len(body), body))

    def check(self, message_id: str | None, correlation_id: str | None, size: int, begin: bytes) -> None:
        """Raise PerfError if no such message was published. `begin`: the first `SAMPLED_BYTES` of the body, or all of
        it.
        """
        if not self.enabled:
            return
        if _fingerprint(message_id, correlation_id, size, begin) not in self._fingerprints:
            raise PerfError(
                f"the broker delivered a message that was not published: message-id {message_id!r}, "
                f"correlation-id {correlation_id!r}, {size} bytes"
            )
        self.checked += 1


def _fingerprint(message_id: str | None, correlation_id: str | None, size: int, begin: bytes) -> int:
    return hash((message_id, correlation_id, size, begin[STAMP_SIZE:SAMPLED_BYTES]))
