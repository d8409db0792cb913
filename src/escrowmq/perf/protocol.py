"""The interface behind which a protocol is hidden from the rest of the load tool."""

from __future__ import annotations

from typing import Protocol

from escrowmq.perf.peer import Consumer, Producer


class RunSession(Protocol):
    """The broker's side of one run: what is declared on it, and the connections that load it."""

    product: str
    """What the broker calls itself; empty when it does not tell."""
    version: str

    def declare(self) -> int:
        """Declare what the load needs; returns how many messages the queues hold already."""

    def depth(self) -> int:
        """How many messages the queues hold now."""

    def producers(self) -> list[Producer]:
        """Connect the producers of the load. They send nothing before they are woken."""

    def consumers(self) -> list[Consumer]:
        """Connect the consumers of the load. They ask for nothing before they are started."""

    def close(self, *, abruptly: bool) -> None:
        """Close all connections, and delete what was declared unless the load keeps it.

        `abruptly`: the loading connections may be in the middle of a frame, so they are only cut.
        """
