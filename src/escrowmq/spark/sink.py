"""The writers (PIPE-2): tasks prepare branches, and the driver commits all of them with one decision."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from escrowmq.client import CommandInvalid, Error, NotFound, RolledBack
from escrowmq.client.escrow import Escrow
from escrowmq.spark.errors import BrokerUnavailableError, EscrowSparkError, OptionError
from escrowmq.spark.features import DataSourceStreamArrowWriter
from escrowmq.spark.identity import FORMAT_ID, UNTOLD, Epoch, application_of, query_of, required_epoch, streaming_epoch
from escrowmq.spark.options import SinkOptions
from escrowmq.spark.pool import escrow, explained
from escrowmq.spark.reconnect import RetryDeadline
from escrowmq.spark.writing import Written, check_target, discard, in_order, write

if TYPE_CHECKING:
    import pyarrow as pa

ROLE: Final = "decider"
_FRAME: Final = 131_072
_HEAD: Final = 1024  # bytes of a decision, apart from the names of its branches
_ITEM: Final = 5
CANCEL_SECONDS: Final = 2.5
"""How long a task may still run after Spark has cancelled it: spark.python.task.killTimeout is 2 s by default."""
_POLL_SECONDS: Final = 0.1
_log: Final = logging.getLogger(__name__)


class StreamWriter(DataSourceStreamArrowWriter):
    """Implements `writeStream`. One micro-batch is one global transaction."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        if options.version is not None:
            raise OptionError("option txn.version is for batch writes only; Spark numbers the epochs of a query")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        epoch = required_epoch(self._options.app_id, self._options.sink_id)
        return write(self._options, epoch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        decide(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        options = self._options
        query = "" if options.app_id is not None else query_of(options.checkpoint)
        epoch = Epoch(application_of(query, options.app_id, options.sink_id), batchId)
        abandon(options, messages, epoch if epoch.application else None)


class BatchWriter(DataSourceArrowWriter):
    """Implements `write`. The job is one global transaction.

    In foreachBatch, its epoch is that of the query. Otherwise its epoch is option txn.version. Without this option it
    has no epoch, and writes again each time it is started.
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
            if options.sink_id is not None:  # without an epoch, a repeated batch would be written twice
                raise OptionError(
                    f"option txn.sink_id is for writes in foreachBatch, or requires txn.version; {UNTOLD}"
                )
            if options.app_id is not None:
                raise OptionError("option txn.app_id requires txn.version, without which a repeated job writes again")
            return self._once
        if options.sink_id is None:
            raise OptionError(
                "a write in foreachBatch requires option txn.sink_id, a name that no other write of the function has, "
                "so that a repeated micro-batch writes nothing twice"
            )
        return within

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        decide(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        options, epoch = self._options, self._once
        if options.version is not None:
            epoch = Epoch(application_of("", options.app_id, options.sink_id), options.version)
        abandon(options, messages, epoch)


def decide(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Commit the branches of the tasks together with the settlements offered by the sources.

    Branches of other attempts are rolled back. If the epoch was decided before, only that is done.

    Args:
        options: the options of the sink.
        messages: the results of the tasks, None for a task without a result.

    Raises:
        EscrowSparkError: a branch is missing, or there are too many. The query fails, and Spark repeats the epoch.
    """
    written = in_order([message for message in messages if isinstance(message, Written)])
    if not written:
        return
    retry = RetryDeadline(options.endpoint, ROLE, options.reconnect)
    again = sent = False
    while True:
        try:
            with explained(options.endpoint):
                broker = escrow(options.endpoint, ROLE)
                winners = _winners(broker, written, again=again, sent=sent)
                if winners is None:
                    return
                sent = True
                _decide(broker, written[0].epoch, winners)
                return
        except BrokerUnavailableError as error:
            retry.failed(error)
            again = True


def _winners(broker: Escrow, written: list[Written], *, again: bool, sent: bool) -> list[bytes] | None:
    """Return the branches to commit; None if there is nothing to decide.

    Args:
        broker: the connection.
        written: the results of the tasks.
        again: whether an earlier connection was lost, so that branches may be prepared already.
        sent: whether a decision was sent on such a connection.

    Raises:
        EscrowSparkError: a branch is missing.
    """
    epoch = written[0].epoch
    winners = [bqual for message in written for bqual in message.branches]
    if any(message.decided for message in written):
        done = broker.progress(epoch.application)
        if done is None or done < epoch.number:
            raise EscrowSparkError(f"{_name(epoch)}: a task found that it was decided, but it is not")
    if epoch.once:
        ready = {xid.bqual for xid in broker.connection.tpc_recover() if xid.gtrid == epoch.gtrid} if again else set()
        if not sent:
            ready |= _prepared(broker, epoch, [bqual for bqual in winners if bqual not in ready])
        # Whatever was prepared when a decision was sent, and is not in doubt now, was committed by that decision.
        return [bqual for bqual in winners if bqual in ready] or None
    if _settles(broker, epoch):
        winners.append(epoch.settle.bqual)
    return winners


def _decide(broker: Escrow, epoch: Epoch, winners: list[bytes]) -> None:
    """Commit these branches of an epoch, and roll back its others.

    Raises:
        EscrowSparkError: a branch is missing, or there are too many.
    """
    room = (broker.connection.frame_max or _FRAME) - _HEAD
    if sum(len(bqual) + _ITEM for bqual in winners) > room:
        raise EscrowSparkError(
            f"{_name(epoch)} has {len(winners)} branches, too many for one decision; write fewer partitions, "
            "for example with coalesce()"
        )
    claim = epoch.claim
    if claim is not None:
        broker.decide(FORMAT_ID, claim.gtrid, [], claim.application, claim.number)
    try:
        broker.decide(FORMAT_ID, epoch.gtrid, winners, epoch.application, epoch.number)
    except (NotFound, CommandInvalid) as error:
        raise EscrowSparkError(f"{_name(epoch)} was not committed, not even in part: {error.text}") from None
    _sweep(broker, epoch)


def _settles(broker: Escrow, epoch: Epoch) -> bool:
    """Prepare the settlements that the sources have offered, and return whether there are any.

    If the offer has timed out, Spark's commit settles the messages.

    Raises:
        EscrowSparkError: the messages were released. They will be read again, so no output made from them may be
            committed.
    """
    try:
        return broker.finish_prepare(epoch.settle, broker.begin_prepare(epoch.settle))
    except NotFound:
        return False
    except CommandInvalid:  # already prepared, for a decision whose answer Spark did not receive
        return broker.prepare(epoch.settle)
    except RolledBack as error:
        if error.timed_out:
            return False
        raise EscrowSparkError(
            f"{_name(epoch)} was not committed, not even in part: its messages are no longer reserved"
        ) from None


def _prepared(broker: Escrow, epoch: Epoch, branches: list[bytes]) -> set[bytes]:
    """Prepare branches, and return those that have anything to commit.

    Raises:
        EscrowSparkError: a branch was rolled back or is missing.
    """
    xids = [epoch.branch(bqual) for bqual in branches]
    try:
        requests = [broker.begin_prepare(xid) for xid in xids]
        answers = [broker.finish_prepare(xid, request) for xid, request in zip(xids, requests, strict=True)]
    except (NotFound, RolledBack) as error:
        raise EscrowSparkError(f"{_name(epoch)} was not committed, not even in part: {error}") from None
    return {xid.bqual for xid, work in zip(xids, answers, strict=True) if work}


def _sweep(broker: Escrow, epoch: Epoch) -> None:
    """Roll back leftover branches of decided epochs.

    A worker that Spark took for dead may have prepared a branch afterwards, and then have been killed.
    """
    if not epoch.once:
        discard(broker, [xid for xid in broker.connection.tpc_recover() if epoch.stale(xid)])


def abandon(options: SinkOptions, messages: list[WriterCommitMessage | None], known: Epoch | None) -> None:
    """Roll back the branches of failed attempts. The epoch stays undecided, so that Spark can retry it.

    Spark cancels the tasks that are still running, but they end a little later, and may have prepared branches by then.
    Their branches are rolled back as they appear.

    Args:
        options: the options of the sink.
        messages: the results of the tasks, None for a task without a result.
        known: the epoch, if the driver knows it.
    """
    written = in_order([message for message in messages if isinstance(message, Written)])
    epoch = written[0].epoch if written else known
    if epoch is None:
        return
    branches = [epoch.branch(bqual) for message in written for bqual in message.branches]
    try:
        with explained(options.endpoint):
            broker = escrow(options.endpoint, ROLE)
            if epoch.once:
                broker.decide(FORMAT_ID, epoch.gtrid, [], "", 0)
                return
            discard(broker, [*branches, epoch.settle])
            deadline = time.monotonic() + CANCEL_SECONDS
            while len(written) < len(messages) and time.monotonic() < deadline:
                discard(broker, [xid for xid in broker.connection.tpc_recover() if xid.gtrid == epoch.gtrid])
                time.sleep(_POLL_SECONDS)
    except (EscrowSparkError, Error) as error:
        _log.warning("%s: %s", _name(epoch), error)  # the cause of the job's failure must not be hidden by this one


def _name(epoch: Epoch) -> str:
    return f"epoch {epoch.number} of {epoch.application or epoch.transaction}"
