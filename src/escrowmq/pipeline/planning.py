"""Plan a run: find the journal's files, the range of the log to read, its gaps, and the pieces for Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown
from escrowmq.journal.format import NOTED_VERSION, TYPE_SEGMENT, TYPE_SNAPSHOT, snapshot_name
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.reader import JournalReader
from escrowmq.pipeline.removals import NOTHING_MISSING, MissingParts

PIECE: Final = 32 << 20
"""The approximate number of bytes that one task reads."""
PART_RECORDS: Final = 250_000
PART_BYTES: Final = 24 << 20
"""The approximate numbers of records, and of bytes of the log, in each of the parts into which messages are divided."""
LOCK: Final = "lock"
NEVER: Final = 1 << 62
NOTING_VERSION: Final = 4
"""The first version of the journal's format with records of transient bindings, without which routes are not known."""


class NoJournalError(Exception):
    """There is no journal that can be audited; the text says why."""


class Piece(NamedTuple):
    """The frames of one file from `first` up to `end`. `snapshot` is a snapshot's LSN, or -1 for a piece of the log."""

    file: str
    first: int
    end: int
    snapshot: int


class Damage(NamedTuple):
    """A damaged place in a file."""

    file: str
    offset: int
    lsn: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The part of a journal that a run reads: the log from `begin` to `end`, and the snapshots taken in between.

    Args:
        journal_id: the journal's ID in hexadecimal.
        begin: the LSN at which this run begins to read.
        end: the LSN at which it stops.
        start: the LSN from which the log has no gaps; below it, some of its history may be gone.
        pieces: the pieces of the log and of snapshots to read.
        snapshots: the LSNs of the snapshots to compare with the log.
        holes: ranges of addresses (begin, end) whose segments have been deleted.
        damage: damaged places.
        held_back: whether the log has one more frame, which the broker may not have synced yet.
        broker: the process ID of the broker that seems to serve the folder; None if there is none.
        newest_snapshot: the LSN of the newest snapshot, 0 if there is none.
        chained: the segments whose digests are to be computed, each as one piece: those that this run reads, and the
            one in which the last run ended.
        noted: the LSN from which the log notes transient bindings; NEVER if it does not.
        missing: the holes without damaged places.
    """

    journal_id: str
    begin: int
    end: int
    start: int
    pieces: list[Piece]
    snapshots: list[int]
    holes: list[tuple[int, int]]
    damage: list[Damage] = field(default_factory=list)
    held_back: bool = False
    broker: int | None = None
    newest_snapshot: int = 0
    chained: list[Piece] = field(default_factory=list)
    noted: int = 0
    missing: MissingParts = NOTHING_MISSING

    @property
    def running(self) -> bool:
        """Whether a broker seems to serve the folder."""
        return self.broker is not None

    @property
    def segments(self) -> list[int]:
        """The LSNs at which the segments begin that this run reads."""
        return sorted({int(piece.file[:16], 16) for piece in self.pieces if piece.snapshot < 0})

    @property
    def bytes(self) -> int:
        """The number of bytes to read."""
        return sum(piece.end - piece.first for piece in self.pieces)


def plan(path: Path, begin: int = 0, start: int = 0, compared: int = -1) -> Plan:
    """Plan a run over the part of a journal that is new.

    Args:
        path: the broker's data directory.
        begin: the LSN up to which earlier runs have read.
        start: the `start` of the previous run's plan.
        compared: the LSN of the last snapshot that an earlier run has compared with the log, -1 for none.

    Raises:
        NoJournalError: there is no journal at `path`, no segment can be read, or its version is unknown.
    """
    if not path.is_dir():
        raise NoJournalError(f"{path}: no such folder")
    reader = JournalReader.open(path)
    try:
        return _plan(reader, path, begin, start, compared)
    except JournalVersionUnknown as error:
        raise NoJournalError(str(error)) from error
    finally:
        reader.close()


def _plan(reader: JournalReader, path: Path, begin: int, start: int, compared: int) -> Plan:
    names = reader.names(TYPE_SEGMENT)
    damage: list[Damage] = []
    files: list[JournalFile] = []
    for name in names:
        try:
            files.append(reader.file(name))
        except JournalDamaged as error:
            damage.append(Damage(name, error.offset, int(name[:16], 16), error.why))
        except FileNotFoundError:
            continue  # the broker has just deleted it
    if not files and damage:
        raise NoJournalError(f"{path}: no segment can be read: {damage[0].file}: {damage[0].why}")
    if not files:
        raise NoJournalError(f"{path}: no journal here: no file with a name like 0000000000000000.log")
    broker = _broker(path)
    pieces: list[Piece] = []
    chained: list[Piece] = []
    holes: list[tuple[int, int]] = []
    links: dict[int, bytes] = {}
    noted = False
    at = 0
    held_back = False
    for i, file in enumerate(files):
        if file.origin > at:
            holes.append((at, file.origin))
            links[file.origin] = file.header.link
        last = i == len(files) - 1
        end, held_back, fault = _end(file, None if last else files[i + 1].origin, hold_back=last and broker is not None)
        if fault is not None:
            damage.append(fault)
        low = max(begin, file.origin)
        if low < end:
            pieces += _pieces(file, low, end)
        noted |= end > file.origin and file.header.version >= NOTED_VERSION
        if end > file.origin and end >= begin:
            chained.append(Piece(file.name, file.origin, end, -1))
        at = end
    start = max([start, *(hole[1] for hole in holes if hole[1] > begin)])
    lsns, taken = _snapshots(reader, damage)
    if lsns and max(lsns) > at and broker is None:
        name = snapshot_name(max(lsns))
        damage.append(Damage(name, 0, at, f"the log ends at LSN {at:#x}, before the point of this snapshot"))
    # A snapshot taken exactly where an earlier run stopped is compared with the state that the earlier run left.
    chosen = [i for i, lsn in enumerate(lsns) if max(begin, start, compared + 1) <= lsn <= at]
    return Plan(
        files[0].header.journal_id.hex(),
        begin,
        at,
        start,
        pieces + [taken[i] for i in chosen],
        [lsns[i] for i in chosen],
        holes,
        damage,
        held_back,
        broker,
        max(lsns, default=0),
        chained,
        min((file.origin for file in files if file.header.version >= NOTING_VERSION), default=NEVER),
        MissingParts([hole for hole in holes if not _damaged(hole, damage)], links, noted),
    )


def _damaged(hole: tuple[int, int], damage: list[Damage]) -> bool:
    """Return whether a segment in the hole exists, but cannot be read."""
    return any(hole[0] <= each.lsn < hole[1] and each.file.endswith(".log") for each in damage)


def _end(file: JournalFile, following: int | None, *, hold_back: bool) -> tuple[int, bool, Damage | None]:
    """Return the end of the file's frames, whether the last one was held back, and the damage after them, if any."""
    if file.footer is not None:
        return file.footer.end_lsn, False, None
    walk = file.walk(end=following)
    before = last = file.origin
    fault = None
    while True:
        for frame in walk:
            before, last = last, frame.end_lsn
        if not walk.why or (following is None and not _broken(file, walk.lsn)):
            break
        later = file.tail(walk.lsn).later_frame
        if later is None or (following is not None and file.lsn_of(later) >= following):
            fault = Damage(file.name, walk.offset, walk.lsn, walk.why)
            break
        walk = file.walk(
            file.lsn_of(later), following
        )  # the scan of the pieces reports the damage that is skipped here
    if hold_back and last > file.origin and not walk.why and following is None:
        return before, True, fault
    return last, False, fault


def _broken(file: JournalFile, lsn: int) -> bool:
    """Return whether an invalid frame at `lsn` is damage.

    It is not if no valid frame follows (a torn tail), or if the frame has become valid since: then the broker was
    writing it, and others after it, when it was read first.
    """
    return file.tail(lsn).later_frame is not None and next(iter(file.walk(lsn)), None) is None


def _pieces(file: JournalFile, low: int, end: int) -> list[Piece]:
    """Divide a file into pieces at borders of frames. A file without an index is one piece."""
    if file.footer is None:
        return [Piece(file.name, low, end, -1)]
    borders = [low]
    for lsn, _, _ in file.footer.index:
        if low < lsn < end and lsn - borders[-1] >= PIECE:
            borders.append(lsn)
    return [Piece(file.name, a, b, -1) for a, b in zip(borders, [*borders[1:], end], strict=True)]


def _snapshots(reader: JournalReader, damage: list[Damage]) -> tuple[list[int], list[Piece]]:
    lsns: list[int] = []
    pieces = []
    for name in reader.names(TYPE_SNAPSHOT):
        try:
            file = reader.file(name)
        except FileNotFoundError:
            continue
        except JournalDamaged as error:
            damage.append(Damage(name, error.offset, 0, error.why))
            continue
        if file.footer is None:
            damage.append(Damage(name, 0, file.header.lsn, "the snapshot is incomplete"))
        else:
            lsns.append(file.header.lsn)
            pieces.append(Piece(name, file.footer.first_lsn, file.footer.end_lsn, file.header.lsn))
    return lsns, pieces


def _broker(path: Path) -> int | None:
    """Return the process ID of the broker that seems to serve this folder; None if there is none.

    While a broker is running, the last frame may not have been synced yet.
    """
    try:
        pid = int((path / LOCK).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return pid if Path("/proc", str(pid)).exists() else None
