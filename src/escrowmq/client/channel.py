"""The channel that applications use: topology, publishing, consuming and AMQP's `tx` transactions."""

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
    """A channel of a connection, opened by `connection.channel()`. Names and arguments are those of pika.

    As a context manager, the channel is closed at the end of the block.
    """

    def tx_select(self, *, timeout: Timeout = DEFAULT) -> Answer[spec.TxSelectOk]:
        """Make the channel transactional: publishes and settlements take effect at `tx_commit` (TX-1).

        Raises:
            ProgrammingError: The channel has taken part in a branch.
        """
        with self.connection.guard:
            self.check_mode("tx_select")
            answer = self.rpc(spec.TxSelect(), timeout=timeout)
            self.mode = "tx"
        return answer

    def tx_commit(self, *, timeout: Timeout = DEFAULT) -> Answer[spec.TxCommitOk]:
        """Commit the transaction: all of it becomes durable and visible, or none of it (TX-5, TX-8)."""
        return self.rpc(spec.TxCommit(), timeout=timeout)

    def tx_rollback(self, *, timeout: Timeout = DEFAULT) -> Answer[spec.TxRollbackOk]:
        """Roll the transaction back: its publishes are dropped, its deliveries can be settled again (TX-4)."""
        return self.rpc(spec.TxRollback(), timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
