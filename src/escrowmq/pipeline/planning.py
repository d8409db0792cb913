"""What there is to read: files, pieces for the tasks, where the log begins and ends, what of it is gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown
from escrowmq.journal.format import TYPE_SEGMENT, TYPE_SNAPSHOT
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.reader import JournalReader

PIECE: Final = 32 << 20
"""Bytes that one task reads."""
LOCK: Final = "lock"


class NoJournalError(Exception):
    """There is nothing to audit; the text says why."""


class Piece(NamedTuple):
    """Frames of one file, from one address to another. `snapshot`: the LSN that it stands for, -1 in the log."""

    file: str
    first: int
    end: int
    snapshot: int


class Damage(NamedTuple):
    """Bytes of a file that are not whole."""

    file: str
    offset: int
    lsn: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run reads: the log from `begin` to `end`, and snapshots taken in between.

    `start`: from there on the log has no gaps. Below it, some of its history may be gone. `held_back`: the log has one
    more frame, which may still be on its way to disk. `broker`: the process that seems to serve the folder.
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

    @property
    def running(self) -> bool:
        """Whether a broker seems to serve the folder."""
        return self.broker is not None

    @property
    def bytes(self) -> int:
        """How much of the log is read."""
        return sum(piece.end - piece.first for piece in self.pieces)


def plan(path: Path, begin: int = 0, start: int = 0, compared: int = -1) -> Plan:
    """What is new in the journal at `path` since `begin`. `start`: of an earlier plan. `compared`: the snapshot up to
    which earlier runs have compared them.

    Raises NoJournalError.
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
    holes: list[tuple[int, int]] = []
    at = 0
    held_back = False
    for i, file in enumerate(files):
        if file.origin > at:
            holes.append((at, file.origin))
        last = i == len(files) - 1
        end, held_back, fault = _end(file, None if last else files[i + 1].origin, hold_back=last and broker is not None)
        if fault is not None:
            damage.append(fault)
        low = max(begin, file.origin)
        if low < end:
            pieces += _pieces(file, low, end)
        at = end
    start = max([start, *(hole[1] for hole in holes if hole[1] > begin)])
    lsns, taken = _snapshots(reader, damage)
    # One that was taken where an earlier run has stopped says what that run had found.
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
    )


def _end(file: JournalFile, following: int | None, *, hold_back: bool) -> tuple[int, bool, Damage | None]:
    """Where the file's frames end, whether one was held back, and what is broken behind them."""
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
        walk = file.walk(file.lsn_of(later), following)  # who reads the pieces will tell of what is passed over
    if hold_back and last > file.origin and not walk.why and following is None:
        return before, True, fault
    return last, False, fault


def _broken(file: JournalFile, lsn: int) -> bool:
    """Whether the place where no whole frame begins is no torn tail; nor one that the broker has been writing while it
    was looked at, and others behind it.
    """
    return file.tail(lsn).later_frame is not None and next(iter(file.walk(lsn)), None) is None


def _pieces(file: JournalFile, low: int, end: int) -> list[Piece]:
    """Pieces that begin and end at frames; a file without an index is one piece."""
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
            damage.append(Damage(name, 0, file.header.lsn, "the snapshot is not whole"))
        else:
            lsns.append(file.header.lsn)
            pieces.append(Piece(name, file.footer.first_lsn, file.footer.end_lsn, file.header.lsn))
    return lsns, pieces


def _broker(path: Path) -> int | None:
    """The process that seems to serve this folder: then the last frame may still be on its way to disk."""
    try:
        pid = int((path / LOCK).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return pid if Path("/proc", str(pid)).exists() else None
