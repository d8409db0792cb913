"""What a task reads: the blocks of its range as record batches, and the settlement of the epoch's ranges."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.client import NotFound, PreconditionFailed, RolledBack
from escrowmq.client.escrow import Escrow
from escrowmq.spark.columns import Columns
from escrowmq.spark.identity import Epoch, required_epoch, streaming_epoch
from escrowmq.spark.options import SourceOptions
from escrowmq.spark.plan import STREAM, Part, Span
from escrowmq.spark.pool import escrow, explained
from escrowmq.spark.queues import report_loss

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROLE: Final = "source"
_enlisted: Final[dict[str, Epoch]] = {}
"""By application, the epoch whose settlement this process has enlisted last."""


def read(options: SourceOptions, schema: StructType, part: Part, *, streaming: bool) -> Iterator[pa.RecordBatch]:
    """The messages of `part`, to be called in a task. Raises DataLossError, BrokerUnavailableError, OptionError."""
    with explained(options.endpoint):
        broker = escrow(options.endpoint, ROLE)
        epoch = None
        if streaming:
            told = required_epoch if options.in_transaction else streaming_epoch
            epoch = told(options.app_id, options.sink_id)
        if epoch is not None and part.settlements:
            _enlist(broker, options, epoch, part)
        columns = Columns(schema)
        span = part.span
        expected = span.first if span.exact else 0
        with contextlib.suppress(NotFound):  # the queue was deleted: what is left of the range is missing
            if not _same(broker, options, span):
                return
            for block in broker.blocks(span.queue, options.group, span.first, span.end):
                if block.first != expected and expected:
                    _missing(broker, options, span, epoch, expected, block.first)
                expected = block.next
                yield columns.batch(span.queue, block.bulk)
            if not _same(broker, options, span):
                return
        if expected != span.end:
            _missing(broker, options, span, epoch, expected, span.end)


def _enlist(broker: Escrow, options: SourceOptions, epoch: Epoch, part: Part) -> None:
    """What the epoch has read is to be settled by the decision over what it writes, if that is taken by this broker.

    It is an offer: without a sink that takes it up, it is over when the next epoch makes its own, or after its timeout,
    and Spark's commit settles the range.
    """
    before = _enlisted.get(epoch.application)
    if before is not None and before.number < epoch.number:
        broker.rollback(before.settle)
    for _ in range(2):
        try:
            broker.enlist(epoch.settle, part.settlements, options.seconds)
        except (NotFound, PreconditionFailed) as error:  # the queue was deleted, or the range released
            broker.rollback(epoch.settle)  # Spark's commit settles what there is to be settled
            text = f"epoch {epoch.number} of {epoch.application} cannot settle what it reads: {error.text}"
            report_loss(options, text)
            return
        except RolledBack:  # by the timeout, or since a worker was killed amid of it: there is nothing in it any more
            broker.rollback(epoch.settle)
        else:
            break
    _enlisted[epoch.application] = epoch


def _same(broker: Escrow, options: SourceOptions, span: Span) -> bool:
    """Whether a stream is still the one that the range was planned for; another one is reported as a loss.

    It is asked before and after reading: the number of a stream never comes again, so what was read in between is its.
    """
    if not span.ident or broker.describe(span.queue)[0].ident == span.ident:
        return True
    messages = f"messages {span.first} to {span.end - 1}"
    report_loss(options, f"queue {span.queue!r}: {messages} cannot be read: the stream was deleted and made anew")
    return False


def _missing(broker: Escrow, options: SourceOptions, span: Span, epoch: Epoch | None, first: int, end: int) -> None:
    """Numbers `first` to `end` - 1 are not there. That is well if this epoch is decided: nobody needs them any more."""
    if epoch is not None and _settled(broker, options, span, end):
        done = broker.progress(epoch.application)
        if done is not None and done >= epoch.number:
            return
        why = (
            f"group {options.group!r} has settled them, but not in epoch {epoch.number} of {epoch.application}: "
            "another query, or another checkpoint of this one, has the same group; give each its own"
        )
    elif span.kind == STREAM:
        why = "the stream's limits have dropped them"
    else:
        why = f"group {options.group!r} does not hold them any more"
    text = f"queue {span.queue!r}: messages {first} to {end - 1} cannot be read: {why}"
    report_loss(options, text)


def _settled(broker: Escrow, options: SourceOptions, span: Span, end: int) -> bool:
    if span.kind == STREAM:
        return False
    try:
        return broker.hold(span.queue, options.group).settled >= end
    except NotFound:
        return False
