"""A channel: all that can be done on it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from escrowmq.client.channel_base import DEFAULT, Timeout
from escrowmq.client.consuming import Consuming
from escrowmq.client.publishing import Publishing
from escrowmq.client.requests import Answer
from escrowmq.client.topology import Topology
from escrowmq.wire.amqp091 import spec


class Channel(Topology, Publishing, Consuming):
    """A channel of a connection; names and arguments are pika's. Made by `connection.channel()`.

    As a context manager it is closed at the end.
    """

    def tx_select(self, *, timeout: Timeout = DEFAULT) -> Answer[spec.TxSelectOk]:
        """Make the channel transactional: publishes and settlements wait for `tx_commit` (TX-1)."""
        with self.connection.guard:
            self.check_mode("tx_select")
            answer = self.rpc(spec.TxSelect(), timeout=timeout)
            self.mode = "tx"
        return answer

    def tx_commit(self, *, timeout: Timeout = DEFAULT) -> Answer[spec.TxCommitOk]:
        """Commit: all of it is on disk and visible, or none (TX-5, TX-8)."""
        return self.rpc(spec.TxCommit(), timeout=timeout)

    def tx_rollback(self, *, timeout: Timeout = DEFAULT) -> Answer[spec.TxRollbackOk]:
        """Drop what was published; deliveries can be settled anew (TX-4)."""
        return self.rpc(spec.TxRollback(), timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
