"""Read a range in a Spark task as record batches, and settle the epoch's ranges."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from escrowmq.client import NotFound, PreconditionFailed, RolledBack
from escrowmq.client.escrow import Block, Escrow
from escrowmq.client.reads import TASK
from escrowmq.spark.columns import Columns
from escrowmq.spark.errors import BrokerUnavailableError
from escrowmq.spark.identity import Epoch, required_epoch, streaming_epoch
from escrowmq.spark.options import SourceOptions
from escrowmq.spark.plan import STREAM, Part, Span
from escrowmq.spark.pool import close_standby, escrow, explained
from escrowmq.spark.queues import report_loss
from escrowmq.spark.reconnect import RetryDeadline

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROLE: Final = "source"
BATCH_ROLE: Final = "batch source"
_enlisted: Final[dict[str, Epoch]] = {}
"""For each application, the last epoch whose settlement this process has enlisted."""


def read(options: SourceOptions, schema: StructType, part: Part, *, streaming: bool) -> Iterator[pa.RecordBatch]:
    """Read the messages of `part`. This function must be called in a Spark task.

    Args:
        options: the options of the source.
        schema: the requested columns.
        part: the range, and the settlements to enlist.
        streaming: whether the task belongs to a streaming query.

    If the broker is lost, the task continues with the next message on another connection.

    Raises:
        DataLossError: messages of the range no longer exist, and option failOnDataLoss is true.
        BrokerUnavailableError: the broker does not answer within option reconnectTimeout, or refuses the login.
        OptionError: the broker's URL is missing or invalid, or access is denied.
    """
    if streaming:
        yield from _read(options, schema, part, ROLE)
        return
    try:
        yield from _read(options, schema, part, BATCH_ROLE, TASK)
    finally:
        close_standby(options.endpoint, BATCH_ROLE)


def _read(
    options: SourceOptions, schema: StructType, part: Part, role: str, reads: str = ""
) -> Iterator[pa.RecordBatch]:
    epoch = None
    if role == ROLE:
        told = required_epoch if options.in_transaction else streaming_epoch
        epoch = told(options.app_id, options.sink_id)
    retry = RetryDeadline(options.endpoint, role, options.reconnect)
    columns = Columns(schema)
    rest = part.span
    while True:
        try:
            with explained(options.endpoint):
                broker = escrow(options.endpoint, role, reads)
                if epoch is not None and part.settlements:
                    _enlist(broker, options, epoch, part)
                for block in _blocks(broker, options, rest, epoch):
                    retry.succeeded()
                    rest = replace(rest, first=block.next, exact=True)
                    yield columns.batch(rest.queue, block.bulk)
                return
        except BrokerUnavailableError as error:
            retry.failed(error)


def _blocks(broker: Escrow, options: SourceOptions, span: Span, epoch: Epoch | None) -> Iterator[Block]:
    """Yield the messages of a range, and report those that no longer exist."""
    expected = span.first if span.exact else 0
    with contextlib.suppress(NotFound):  # if the queue is deleted meanwhile, the rest of the range is missing
        if not _same(broker, options, span):
            return
        if span.first < span.end:
            for block in broker.blocks(span.queue, options.group, span.first, span.end):
                if block.first != expected and expected:
                    _missing(broker, options, span, epoch, expected, block.first)
                expected = block.next
                yield block
        if not _same(broker, options, span):
            return
    if expected != span.end:
        _missing(broker, options, span, epoch, expected, span.end)


def _enlist(broker: Escrow, options: SourceOptions, epoch: Epoch, part: Part) -> None:
    """Offer to settle the epoch's ranges in the decision that commits its output, if the sink uses the same broker.

    If no sink accepts the offer, Spark's commit settles the ranges. The offer then ends with the next epoch's offer, or
    after its timeout.
    """
    before = _enlisted.get(epoch.application)
    if before is not None and before.number < epoch.number:
        broker.rollback(before.settle)
    for _ in range(2):
        try:
            broker.enlist(epoch.settle, part.settlements, options.seconds)
        except (NotFound, PreconditionFailed) as error:  # the queue was deleted, or the range released
            broker.rollback(epoch.settle)  # Spark's commit settles the rest
            text = f"epoch {epoch.number} of {epoch.application} cannot settle the messages that it reads: {error.text}"
            report_loss(options, text)
            return
        except RolledBack:  # by the timeout, or because a worker was killed in between; an empty branch is left
            broker.rollback(epoch.settle)
        else:
            break
    _enlisted[epoch.application] = epoch


def _same(broker: Escrow, options: SourceOptions, span: Span) -> bool:
    """Return whether a stream is still the one for which the range was planned. If not, this reports a loss.

    The check is made before and after reading. IDs of streams are never reused, so everything read in between belongs
    to the right stream.
    """
    if not span.ident or broker.describe(span.queue)[0].ident == span.ident:
        return True
    messages = f"messages {span.first} to {span.end - 1}"
    report_loss(options, f"queue {span.queue!r}: {messages} cannot be read: the stream was deleted and declared again")
    return False


def _missing(broker: Escrow, options: SourceOptions, span: Span, epoch: Epoch | None, first: int, end: int) -> None:
    """Report that the messages `first` to `end` - 1 are missing, unless this epoch is already decided.

    The messages of a decided epoch are settled, and its output has been written.
    """
    if epoch is not None and _settled(broker, options, span, end):
        done = broker.progress(epoch.application)
        if done is not None and done >= epoch.number:
            return
        why = (
            f"group {options.group!r} has settled them, but not in epoch {epoch.number} of {epoch.application}: "
            "another query, or another checkpoint of this query, uses the same group; each needs its own group"
        )
    elif span.kind == STREAM:
        why = "the stream's limits have dropped them"
    else:
        why = f"they are no longer reserved for group {options.group!r}"
    text = f"queue {span.queue!r}: messages {first} to {end - 1} cannot be read: {why}"
    report_loss(options, text)


def _settled(broker: Escrow, options: SourceOptions, span: Span, end: int) -> bool:
    if span.kind == STREAM:
        return False
    try:
        return broker.hold(span.queue, options.group).settled >= end
    except NotFound:
        return False
