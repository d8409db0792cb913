"""The interface that hides a protocol from the rest of the load tool."""

from __future__ import annotations

from typing import Protocol

from escrowmq.perf.peer import Consumer, Producer


class RunSession(Protocol):
    """The broker's side of one run: its declarations, and the connections that load it."""

    product: str
    """The broker's product name; empty if it does not send one."""
    version: str

    def declare(self) -> int:
        """Declare the queues and exchanges of the load. Returns the number of messages that the queues hold already."""

    def depth(self) -> int:
        """Return the number of messages that the queues hold now."""

    def producers(self) -> list[Producer]:
        """Connect the producers of the load. They send nothing before they are woken."""

    def consumers(self) -> list[Consumer]:
        """Connect the consumers of the load. They ask for nothing before they are started."""

    def close(self, *, abruptly: bool) -> None:
        """Close all connections, and delete the declared queues and exchanges unless the load keeps them.

        `abruptly`: the loading connections may be in the middle of a frame, so they are only cut.
        """
