"""Write rows in a Spark task: publish them in bulk, in branches of the epoch's global transaction (PIPE-2)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from escrowmq.client import Channel, Error, NotFound, Xid
from escrowmq.client.escrow import Escrow
from escrowmq.spark.attempt import Attempt
from escrowmq.spark.encoding.blocks import ROWS, contents, pieces
from escrowmq.spark.encoding.names import groups, names, runs
from escrowmq.spark.encoding.properties import PropertiesEncoder
from escrowmq.spark.errors import EscrowSparkError, OptionError
from escrowmq.spark.identity import Epoch, attempt
from escrowmq.spark.options import SinkOptions
from escrowmq.spark.pool import close, escrow

if TYPE_CHECKING:
    import pyarrow as pa

ROLE: Final = "sink"
BRANCH_BYTES: Final = 16 << 20
BRANCH_MESSAGES: Final = 200_000
"""The approximate limits of one branch, in bytes and messages. A larger partition has several branches."""


@dataclass
class Written(WriterCommitMessage):
    """The result of a task.

    Args:
        epoch: the epoch for which the task wrote.
        branches: the qualifiers of its branches, in order.
        messages: the number of messages published.
        decided: whether the epoch had been decided before, so that nothing was written.
    """

    epoch: Epoch
    branches: tuple[bytes, ...] = ()
    messages: int = 0
    decided: bool = False


def write(options: SinkOptions, epoch: Epoch, batches: Iterator[pa.RecordBatch], job: str = "") -> Written:
    """Publish all rows in branches, and prepare the branches.

    The branches of a job that runs only once are not prepared here but by its driver. If that driver is killed, nothing
    will ever decide them, so they must time out, which a prepared branch never does.

    Args:
        options: the options of the sink.
        epoch: the epoch for which to write.
        batches: the rows.
        job: identifies a batch job.

    Raises:
        BrokerUnavailableError: the broker does not answer, or refuses the login.
        OptionError: a target does not exist, or the epoch was written from another checkpoint.
        EscrowSparkError: a row cannot be published, or the broker rolled back a branch.
    """
    name = attempt(job)
    trial = Attempt(
        options.endpoint,
        ROLE,
        options.reconnect,
        lambda broker, number: _Task(broker, number, options, epoch, name),
    )
    if trial.ask(lambda broker: _decided(broker, epoch)):
        for _ in batches:
            pass  # the epoch is repeated, and its rows have been written by the first run
        return Written(epoch, decided=True)
    try:
        for batch in batches:
            trial.publish(batch)
        trial.finish()
        # This must come after `finish`. Either the answer reports a decision that did not know our branches, or a
        # later decision will find them, and commit them or roll them back.
        decided = trial.ask(lambda broker: _decided(broker, epoch))
    except BaseException:
        trial.drop()
        raise
    if decided:
        trial.drop()
        return Written(epoch, decided=True)
    return Written(epoch, trial.branches, trial.messages)


def _decided(broker: Escrow, epoch: Epoch) -> bool:
    """Return whether the epoch was decided before.

    Raises:
        OptionError: an epoch of the same number from another checkpoint was decided. To skip this one would lose data.
    """
    if epoch.once or not _reached(broker, epoch):
        return False
    if epoch.claim is not None and not _reached(broker, epoch.claim):
        raise OptionError(
            f"{epoch.application!r} has already written epoch {epoch.number} from another checkpoint; use a new "
            "txn.app_id with a new checkpoint, or none"
        )
    return True


def _reached(broker: Escrow, epoch: Epoch) -> bool:
    done = broker.progress(epoch.application)
    return done is not None and done >= epoch.number


@dataclass(frozen=True, slots=True)
class _MessageRows:
    """Rows to be published. `columns` has the columns that determine their targets."""

    bodies: pa.Array
    properties: pa.Array | None
    headers: pa.Array | None
    columns: dict[str, pa.Array]

    @classmethod
    def of(cls, columns: dict[str, pa.Array]) -> _MessageRows:
        return cls(columns["body"], columns.get("properties"), columns.get("headers"), columns)

    @property
    def bytes(self) -> int:
        """The size of what is published, about."""
        return sum(each.nbytes for each in (self.bodies, self.properties, self.headers) if each is not None)

    def slice(self, begin: int, end: int) -> _MessageRows:
        """Return the rows from `begin` to `end`."""
        return self._each(lambda column: column.slice(begin, end - begin))

    def take(self, chosen: pa.Array) -> _MessageRows:
        """Return the rows with these numbers."""
        return self._each(lambda column: column.take(chosen))

    def _each(self, cut: Callable[[pa.Array], pa.Array]) -> _MessageRows:
        properties = None if self.properties is None else cut(self.properties)
        return _MessageRows(cut(self.bodies), properties, None if self.headers is None else cut(self.headers), {})


class _Task:
    """Writes a partition, or the rest of one, on one connection."""

    def __init__(self, broker: Escrow, number: int, options: SinkOptions, epoch: Epoch, name: bytes) -> None:
        self.done: list[Xid] = []
        self.number = number
        self._broker = broker
        self._options = options
        self._epoch = epoch
        self._name = name
        self._encoder = PropertiesEncoder()
        self._channel: Channel | None = None
        self._xid: Xid | None = None
        self._bytes = self._rows = 0
        self._requests: list[tuple[Xid, Any]] = []
        self._known: set[tuple[bool, str]] = set()

    @property
    def full(self) -> bool:
        """Whether the next rows belong into another branch."""
        return self._bytes >= BRANCH_BYTES or self._rows >= BRANCH_MESSAGES

    @property
    def waiting(self) -> int:
        """How many branches await the answer to their preparation."""
        return len(self._requests)

    @property
    def left(self) -> list[Xid]:
        """The branches that are not surely prepared."""
        current = [self._xid] if self._channel is not None and self._xid is not None else []
        return [xid for xid, _ in self._requests] + current

    def publish(self, batch: pa.RecordBatch) -> None:
        """Publish all rows of a batch, in order.

        Raises:
            EscrowSparkError: a body is null, or a name or property is invalid.
            OptionError: a target does not exist.
        """
        if not batch.num_rows:
            return
        rows = _MessageRows.of({name: batch.column(i) for i, name in enumerate(batch.schema.names)})
        if rows.bodies.null_count:
            raise EscrowSparkError("column body contains a null; a message without content needs an empty body")
        properties = self._encoder.uniform(rows.properties, rows.headers)
        for exchange, key, some in self._targets(rows):
            if isinstance(key, str) and properties is not None:
                self._work().publish_many(exchange, key, some.bodies, properties)
            else:
                self._publish(exchange, key, some)
        self._rows += len(rows.bodies)
        self._bytes += rows.bytes

    def _publish(self, exchange: str, key: str | pa.Array, rows: _MessageRows) -> None:
        """Publish rows that differ in more than their bodies: as blocks, as far as possible."""
        frame_max = self._broker.connection.frame_max
        for begin in range(0, len(rows.bodies), ROWS):
            part = rows.slice(begin, begin + ROWS)
            keys = None if isinstance(key, str) else key.slice(begin, ROWS)
            found = contents(part.bodies, part.properties, part.headers, keys, frame_max)
            for piece in pieces(found, len(part.bodies), keyed=keys is not None):
                if piece.block is not None:
                    self._work().publish_block(exchange, key if isinstance(key, str) else "", piece.block)
                    continue
                few = part.slice(piece.begin, piece.end)
                each = key if keys is None else keys.slice(piece.begin, piece.end - piece.begin).to_pylist()
                properties = self._encoder.encode(few.properties, few.headers)
                self._work().publish_many(exchange, each, few.bodies, properties)

    def _targets(self, rows: _MessageRows) -> Iterator[tuple[str, str | pa.Array, _MessageRows]]:
        """Yield exchange, routing key or keys, and rows with the same exchange. The rows of a queue stay in order."""
        options, columns, count = self._options, rows.columns, len(rows.bodies)
        if options.queue is not None:
            self._check("queue", options.queue)
            yield "", options.queue, rows
        elif options.exchange is None and "queue" in columns:
            for name, chosen in groups(columns["queue"], "queue"):
                self._check("queue", name)
                yield "", name, rows if chosen is None else rows.take(chosen)
        else:
            key = names(columns["routing_key"], "routing_key") if options.routing_key is None else options.routing_key
            if options.exchange is not None:
                self._check("exchange", options.exchange)
                yield options.exchange, key, rows
                return
            for exchange, begin, end in runs(columns["exchange"], "exchange"):
                self._check("exchange", exchange)
                whole = end - begin == count
                some = key if whole or isinstance(key, str) else key.slice(begin, end - begin)
                yield exchange, some, rows if whole else rows.slice(begin, end)

    def _check(self, kind: str, name: str) -> None:
        """Check once that a target exists, because messages to a queue that does not exist are dropped silently.

        Raises:
            OptionError: the target does not exist.
        """
        if (kind == "queue", name) in self._known:
            return
        check_target(self._broker, kind, name)
        self._known.add((kind == "queue", name))

    def _work(self) -> Channel:
        if self._channel is None:
            self._xid = self._epoch.branch(self._name + b".%d" % self.number)
            self.number += 1
            self._channel = self._broker.start(self._xid, self._options.seconds)
        return self._channel

    def prepare(self) -> None:
        """End the current branch, and request its preparation. The next row begins a new branch."""
        if self._channel is None or self._xid is None:
            return
        self._broker.end(self._xid)
        if self._epoch.once:
            self.done.append(self._xid)
        else:
            self._requests.append((self._xid, self._broker.begin_prepare(self._xid)))
        self._channel = None
        self._bytes = self._rows = 0

    def wait(self, most: int) -> None:
        """Wait until at most `most` branches await an answer.

        Raises:
            RolledBack: the broker rolled back a branch.
        """
        while len(self._requests) > most:
            xid, request = self._requests[0]
            if self._broker.finish_prepare(xid, request):
                self.done.append(xid)
            self._requests.pop(0)

    def drop(self, branches: list[Xid]) -> None:
        """Roll back these branches."""
        with contextlib.suppress(Error):
            if self._broker.connection.blocked is not None:
                # The broker reads nothing after a publish that it does not accept, so use another connection.
                close(self._options.endpoint, ROLE)
            elif self._channel is not None:
                self._channel.close()  # rolls back the current branch, unless it has ended
        discard(escrow(self._options.endpoint, ROLE), branches)


def check_target(broker: Escrow, kind: str, name: str) -> None:
    """Check that a queue or an exchange exists; `kind` is `queue` or `exchange`.

    Raises:
        OptionError: it does not exist.
    """
    if kind == "exchange" and not name:
        return  # the default exchange
    with broker.connection.channel() as channel:
        try:
            if kind == "queue":
                channel.queue_declare(name, passive=True)
            else:
                channel.exchange_declare(name, passive=True)
        except NotFound:
            raise OptionError(f"there is no {kind} {name!r} to write to; declare it first") from None


def discard(broker: Escrow, branches: list[Xid]) -> None:
    """Roll back those of the branches that are not decided."""
    for xid in branches:
        broker.rollback(xid)


def in_order(messages: list[Written | None]) -> list[Written]:
    """Return the results of tasks, in the order of partitions, without missing ones.

    Raises:
        EscrowSparkError: tasks wrote for different epochs.
    """
    found = [message for message in messages if message is not None]
    for one, other in pairwise(found):
        if one.epoch != other.epoch:
            raise EscrowSparkError(f"tasks of one batch wrote for epochs {one.epoch} and {other.epoch}")
    return found
