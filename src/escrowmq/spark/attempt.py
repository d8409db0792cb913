"""One attempt to write a partition, which outlives the loss of the broker (PIPE-7).

The rows of branches that are not surely prepared are kept. When the broker is back, they are published again in new
branches. The decision of the epoch rolls back the old branches, because it does not name them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from escrowmq.client import Error, Xid
from escrowmq.client.escrow import Escrow
from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import BrokerUnavailableError, EscrowSparkError
from escrowmq.spark.pool import escrow, explained
from escrowmq.spark.reconnect import RetryDeadline

if TYPE_CHECKING:
    import pyarrow as pa

MOST_REQUESTS: Final = 2
"""How many branches may await the answer to their preparation. Their rows are in memory until then."""

R = TypeVar("R")


class BranchWriter(Protocol):
    """What publishes on one connection, in branches one after the other."""

    @property
    def done(self) -> list[Xid]:
        """The prepared branches, in order."""

    @property
    def left(self) -> list[Xid]:
        """The other branches."""

    @property
    def number(self) -> int:
        """The number of the next branch."""

    @property
    def waiting(self) -> int:
        """How many branches await the answer to their preparation."""

    @property
    def full(self) -> bool:
        """Whether the next rows belong into another branch."""

    def publish(self, batch: pa.RecordBatch) -> None:
        """Publish all rows of a batch, in order."""

    def prepare(self) -> None:
        """End the branch, and request its preparation."""

    def wait(self, most: int) -> None:
        """Wait until at most `most` branches await an answer."""

    def drop(self, branches: list[Xid]) -> None:
        """Roll back these branches."""


class Attempt:
    """Publishes batches, with one task for each connection.

    Args:
        endpoint: the source of the broker's URL.
        role: the purpose of the connection.
        seconds: how long to look for the broker when it is lost.
        task: makes a task from a connection and the number of its first branch.
    """

    def __init__(
        self, endpoint: Endpoint, role: str, seconds: int, task: Callable[[Escrow, int], BranchWriter]
    ) -> None:
        self.messages = 0
        self._endpoint = endpoint
        self._role = role
        self._retry = RetryDeadline(endpoint, role, seconds)
        self._make = task
        self._task: BranchWriter | None = None
        self._number = 0
        self._done: list[Xid] = []
        self._lost: list[Xid] = []
        self._pending: list[list[pa.RecordBatch]] = []  # for each branch that awaits an answer
        self._kept: list[pa.RecordBatch] = []

    @property
    def branches(self) -> tuple[bytes, ...]:
        """The qualifiers of the prepared branches, in order."""
        done = self._done + (self._task.done if self._task is not None else [])
        return tuple(xid.bqual for xid in done)

    def ask(self, question: Callable[[Escrow], R]) -> R:
        """Return the answer to a question, which may be repeated.

        Raises:
            BrokerUnavailableError: the broker does not return in time.
        """
        while True:
            try:
                with explained(self._endpoint):
                    found = question(escrow(self._endpoint, self._role))
            except BrokerUnavailableError as error:
                self._lose()
                self._retry.failed(error)
            else:
                self._retry.succeeded()
                return found

    def publish(self, batch: pa.RecordBatch) -> None:
        """Publish all rows of a batch, in order.

        Raises:
            EscrowSparkError: a row cannot be published, the broker rolled back a branch, or does not return in time.
        """
        if not batch.num_rows:
            return
        if self._task is not None and self._task.full:
            self._work(lambda task: self._prepare(task, MOST_REQUESTS))
        self._work(lambda task: task.publish(batch))
        self._kept.append(batch)
        self.messages += batch.num_rows

    def finish(self) -> None:
        """Prepare the last branch, and wait for all answers.

        Raises:
            EscrowSparkError: the broker rolled back a branch, or does not return in time.
        """
        if self.messages:
            self._work(lambda task: self._prepare(task, 0))

    def drop(self) -> None:
        """Roll back all branches. If that fails, the decision or a timeout will do it."""
        task = self._task
        left = self._done + self._lost + (task.done + task.left if task is not None else [])
        if left:
            with contextlib.suppress(Error, EscrowSparkError):
                if task is None:
                    task = self._make(escrow(self._endpoint, self._role), self._number)
                task.drop(left)

    def _work(self, work: Callable[[BranchWriter], None]) -> None:
        def proceed(broker: Escrow) -> None:
            if self._task is None:
                self._task = self._make(broker, self._number)
                for batch in self._kept:
                    self._task.publish(batch)
            work(self._task)

        self.ask(proceed)

    def _prepare(self, task: BranchWriter, most: int) -> None:
        task.prepare()
        if self._kept:
            self._pending.append(self._kept)
            self._kept = []
        task.wait(most)
        self._forget(task)

    def _forget(self, task: BranchWriter) -> None:
        """Forget the rows of prepared branches."""
        del self._pending[: len(self._pending) - task.waiting]

    def _lose(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._forget(task)
            self._kept = [batch for kept in [*self._pending, self._kept] for batch in kept]
            self._pending = []
            self._done += task.done
            self._lost += task.left
            self._number = task.number
