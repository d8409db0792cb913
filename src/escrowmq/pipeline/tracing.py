"""`escrowmq audit --message`: find a message in a journal by its id, and tell its life. It needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.journal.reader import JournalReader
from escrowmq.message_ids import id_spellings
from escrowmq.pipeline import traces
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.frames import Records, records
from escrowmq.pipeline.identities import identity, published
from escrowmq.pipeline.operations import operations
from escrowmq.pipeline.planning import Plan, plan
from escrowmq.pipeline.tasks import BlockLookup

Told = Callable[[int, int], object]
"""Called with the number of pieces read and the total."""


class FoundLife(NamedTuple):
    """A message on one queue, with every record about it."""

    vhost: str
    queue: str
    position: int
    steps: list[traces.TracedStep]


def lives(journal: Path, ident: str, tell: Told = lambda _done, _total: None) -> list[FoundLife]:
    """Return the lives of all messages with a message id, one for each queue that had it. A UUID may be written as
    `message_ids` says.

    Raises:
        NoJournalError: there is no journal that can be read.
    """
    found = plan(journal)
    reader = JournalReader.open(journal)
    try:
        lookup = BlockLookup(reader)
        meant = id_spellings(ident)
        needles = tuple(dict.fromkeys(needle for each in meant for needle in _needles(each)))
        names: dict[int, tuple[str, str]] = {}
        places: dict[int, list[int]] = {}
        pieces = len(found.pieces)
        for i, window in _windows(reader, found, snapshots=True):
            tell(i, 2 * pieces)
            _note_names(window, names)
            octets = window.data.tobytes()
            if any(needle in octets for needle in needles):
                for _, targets, block in published(window, operations(window), lookup, needles):
                    for nth, content in enumerate(block.contents):
                        if identity(block.envelope, content).message_id in meant:
                            for target in targets:
                                places.setdefault(target.queue, []).append(target.first + nth)
        told: dict[tuple[int, int], list[traces.TracedStep]] = {}
        for i, window in _windows(reader, found, snapshots=False) if places else ():
            tell(pieces + i, 2 * pieces)
            for step in traces.steps(window, places, lookup):
                told.setdefault((step.queue_id, step.position), []).append(step)
    finally:
        reader.close()
    unknown = "", "a queue whose name is no longer in the journal"
    return [
        FoundLife(*names.get(queue, unknown), position, sorted(steps, key=lambda step: step.lsn))
        for (queue, position), steps in sorted(told.items())
    ]


def described(life: FoundLife) -> Iterator[str]:
    """Yield the lines that tell a life."""
    who = next((step.identity for step in life.steps if any(step.identity)), None)
    names = (
        [] if who is None else [f"{name.replace('_', '-')} {value}" for name, value in who._asdict().items() if value]
    )
    yield f"{life.queue} {life.position} in virtual host {life.vhost}" + (f": {', '.join(names)}" if names else "")
    for step in life.steps:
        at = datetime.fromtimestamp(step.at / 1e6, UTC)
        yield f"  {at:%Y-%m-%d %H:%M:%S.%f}  LSN {step.lsn:#x}  {step.what}"


def _windows(reader: JournalReader, found: Plan, *, snapshots: bool) -> Iterator[tuple[int, Records]]:
    for i, piece in enumerate(found.pieces):
        if piece.snapshot < 0 or snapshots:
            for window in reader.windows(piece.file, piece.first, piece.end, skipped=[]):
                yield i, records(window)


def _note_names(window: Records, names: dict[int, tuple[str, str]]) -> None:
    for i in window.of_kind(Kind.QUEUE_DECLARED).tolist():
        fields = decode_change(bytes(window.payload(i)))
        names[fields["id"]] = plain(fields["vhost"]), plain(fields["name"])


def _needles(ident: str) -> tuple[bytes, ...]:
    """Return the octets that a message with this id may contain: text, UUID, binary, or a number."""
    found = [ident.encode("utf-8", "surrogatepass")]
    with suppress(ValueError):
        found.append(UUID(ident).bytes)
    with suppress(ValueError):
        found.append(bytes.fromhex(ident))
    if ident.isascii() and ident.isdigit() and int(ident) < 1 << 64:
        number = int(ident)
        found.append(number.to_bytes(8, "big") if number > 255 else b"S" + number.to_bytes(1, "big"))
    return tuple(each for each in found if each)
