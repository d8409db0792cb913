"""The writers (PIPE-2): tasks prepare branches, the driver decides over all of them in one record."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from escrowmq.client import CommandInvalid, Error, NotFound, RolledBack
from escrowmq.client.escrow import Escrow
from escrowmq.spark.errors import EscrowSparkError, OptionError
from escrowmq.spark.identity import FORMAT_ID, UNTOLD, Epoch, application_of, required_epoch, streaming_epoch
from escrowmq.spark.options import SinkOptions
from escrowmq.spark.pool import escrow, explained
from escrowmq.spark.writing import Written, check_target, discard, in_order, write

if TYPE_CHECKING:
    import pyarrow as pa

ROLE: Final = "decider"
_FRAME: Final = 131_072
_HEAD: Final = 1024  # of a decision, beside the names of its branches
_ITEM: Final = 5
_log: Final = logging.getLogger(__name__)


class StreamWriter(DataSourceStreamArrowWriter):
    """`writeStream`: one micro-batch is one global transaction."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        if options.version is not None:
            raise OptionError("option txn.version is for batch writes; a query's epochs are numbered by Spark")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        epoch = required_epoch(self._options.app_id, self._options.sink_id)
        return write(self._options, epoch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        decide(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abandon(self._options, messages)


class BatchWriter(DataSourceArrowWriter):
    """`write`: the job is one global transaction. Within foreachBatch the epoch is the query's, else `txn.version`'s,
    and without that the job is one that happens once.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = uuid.uuid4().hex
        self._once = Epoch("", 0, transaction=self._job)
        with explained(options.endpoint):
            broker = escrow(options.endpoint, ROLE)
            for kind, name in (("queue", options.queue), ("exchange", options.exchange)):
                if name is not None:
                    check_target(broker, kind, name)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, self._epoch(), iterator, self._job)

    def _epoch(self) -> Epoch:
        options = self._options
        if options.version is not None:
            return Epoch(application_of("", options.app_id, options.sink_id), options.version)
        within = streaming_epoch(options.app_id, options.sink_id)
        if within is None:
            if options.sink_id is not None:  # a batch that is run again would be written again
                raise OptionError(
                    f"option txn.sink_id is for writes within foreachBatch, or needs txn.version. {UNTOLD}"
                )
            if options.app_id is not None:
                raise OptionError("option txn.app_id needs txn.version, without which a job is written again each time")
            return self._once
        if options.sink_id is None:
            raise OptionError(
                "a write within foreachBatch needs option txn.sink_id, a name that no other write of the function has, "
                "so that a micro-batch that is run again writes nothing twice"
            )
        return within

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        decide(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abandon(self._options, messages, self._once)


def decide(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Commit what the tasks have prepared, with what the sources have offered to settle; roll back other attempts.

    If the epoch was decided before, nothing happens but the latter. Raises EscrowSparkError if a branch is missing:
    then the query fails, and the epoch is run again.
    """
    written = in_order([message for message in messages if isinstance(message, Written)])
    if not written:
        return
    epoch = written[0].epoch
    winners = [bqual for message in written for bqual in message.branches]
    with explained(options.endpoint):
        broker = escrow(options.endpoint, ROLE)
        if any(message.decided for message in written):
            done = broker.progress(epoch.application)
            if done is None or done < epoch.number:
                raise EscrowSparkError(f"{_name(epoch)}: a task found it decided, and it is not")
        if epoch.once:
            winners = _prepared(broker, epoch, winners)
            if not winners:
                return
        elif _settles(broker, epoch):
            winners.append(epoch.settle.bqual)
        room = (broker.connection.frame_max or _FRAME) - _HEAD
        if sum(len(bqual) + _ITEM for bqual in winners) > room:
            raise EscrowSparkError(
                f"{_name(epoch)} has {len(winners)} branches, more than one decision can name: write fewer partitions, "
                "by coalesce()"
            )
        claim = epoch.claim
        if claim is not None:
            broker.decide(FORMAT_ID, claim.gtrid, [], claim.application, claim.number)
        try:
            broker.decide(FORMAT_ID, epoch.gtrid, winners, epoch.application, epoch.number)
        except (NotFound, CommandInvalid) as error:
            raise EscrowSparkError(f"{_name(epoch)} cannot be committed, nothing of it is: {error.text}") from None
        _sweep(broker, epoch)


def _settles(broker: Escrow, epoch: Epoch) -> bool:
    """Prepare what sources have offered to settle; whether there is something. If its time is over, Spark's commit
    settles it. Raises EscrowSparkError if it was released: it will come again, so nothing made of it may be committed.
    """
    try:
        return broker.finish_prepare(epoch.settle, broker.begin_prepare(epoch.settle))
    except NotFound:
        return False
    except CommandInvalid:  # prepared, by a decision of which Spark has not heard
        return broker.prepare(epoch.settle)
    except RolledBack as error:
        if error.timed_out:
            return False
        raise EscrowSparkError(
            f"{_name(epoch)} cannot be committed, nothing of it is: what it has read is not held any more"
        ) from None


def _prepared(broker: Escrow, epoch: Epoch, branches: list[bytes]) -> list[bytes]:
    """Prepare them; those that have anything to commit. Raises EscrowSparkError."""
    xids = [epoch.branch(bqual) for bqual in branches]
    try:
        requests = [broker.begin_prepare(xid) for xid in xids]
        answers = [broker.finish_prepare(xid, request) for xid, request in zip(xids, requests, strict=True)]
    except (NotFound, RolledBack) as error:
        raise EscrowSparkError(f"{_name(epoch)} cannot be committed, nothing of it is: {error}") from None
    return [xid.bqual for xid, work in zip(xids, answers, strict=True) if work]


def _sweep(broker: Escrow, epoch: Epoch) -> None:
    """Roll back branches of decided epochs: of workers that were thought dead, prepared, and were killed then."""
    if not epoch.once:
        discard(broker, [xid for xid in broker.connection.tpc_recover() if epoch.stale(xid)])


def abandon(options: SinkOptions, messages: list[WriterCommitMessage | None], once: Epoch | None = None) -> None:
    """Drop what these attempts have prepared. The epoch itself stays undecided: Spark will try it again. But of a job
    that happens `once` everything goes.
    """
    written = in_order([message for message in messages if isinstance(message, Written)])
    epoch = written[0].epoch if written else once
    if epoch is None:
        return
    branches = [epoch.branch(bqual) for message in written for bqual in message.branches]
    try:
        with explained(options.endpoint):
            broker = escrow(options.endpoint, ROLE)
            if epoch.once:
                broker.decide(FORMAT_ID, epoch.gtrid, [], "", 0)
            else:
                discard(broker, [*branches, epoch.settle])
    except (EscrowSparkError, Error) as error:
        _log.warning("%s: %s", _name(epoch), error)  # why the job failed is worth more to be told


def _name(epoch: Epoch) -> str:
    return f"epoch {epoch.number} of {epoch.application or epoch.transaction}"
