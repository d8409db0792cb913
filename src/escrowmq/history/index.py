"""The index: a SQLite file with the ids of messages and what happened to them, by address in the journal."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from escrowmq.history.events import Found, IndexedBlock, IndexedBranch, IndexedPlacement, MessageEvent
from escrowmq.message_ids import id_spellings

FOLDER: Final = "index"
NAME: Final = "messages.sqlite"
WIDE: Final = 4096
"""Events about more messages than this are looked at one by one."""
VERSION: Final = 3
CACHE_KIB: Final = 32 << 10
"""Memory for the parts of the file that are written to. Ids are often random, and so are their places in it."""
MOST: Final = 200
"""Messages that a search returns."""
MOST_MOMENTS: Final = 1000
"""Events of one message that are returned, the first ones."""
STILL_SECONDS: Final = 5.0
"""Seconds without a write after which an index without tables is not a new one."""
_SCHEMA: Final = """
create table meta (name text primary key, value) without rowid;
create table queue (id integer primary key, vhost text, name text, lsn integer);
create table branch (number integer primary key, xid text, lsn integer);
create table message (
    id text, correlation text, queue integer, position integer, block integer, number integer, lsn integer
);
create table event (
    queue integer, first integer, last integer, lsn integer, time_us integer, what text, detail text, wide integer
);
create index message_id on message (id) where id is not null;
create index message_correlation on message (correlation) where correlation is not null;
create index message_place on message (queue, position);
create index message_block on message (block);
create index event_place on event (wide, queue, first);
"""


_GROWING: Final = ("message", "event")
"""Tables whose rows are in the order of their addresses, so that their numbers serve as an index of these."""
_TOGETHER: Final = 10_000
"""Rows that are inserted together."""


class IndexedPlace(NamedTuple):
    """Where a message is or was: `queue` is a number, `position` None for a message of a prepared branch."""

    message_id: str | None
    correlation_id: str | None
    queue: int | None
    vhost: str | None
    name: str | None
    position: int | None
    lsn: int


class LifeMoment(NamedTuple):
    """One event of a message's life."""

    lsn: int
    time_us: int
    what: str
    detail: str


class MessageIndex:
    """The index of the journal in `folder`. Writing is for one process; others may read meanwhile."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        """Open the index, or make one. Raises sqlite3.Error, and OSError; for reading, there must be one."""
        path = self._path = folder / FOLDER / NAME
        if not read_only:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._inode = _inode(path)
        self._messages: list[Sequence[Any]] = []  # rows that are to be inserted
        self._events: list[Sequence[Any]] = []
        mode = "ro" if read_only else "rw"
        self._db = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False)
        if not read_only:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = off")  # it can be made again from the journal
            self._db.execute(f"pragma cache_size = -{CACHE_KIB}")
            if self._get("version") != VERSION:
                self.clear()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def in_place(self) -> bool:
        """Whether the file has not been deleted or replaced since it was opened."""
        return _inode(self._path) == self._inode

    # -- writing

    def clear(self) -> None:
        """Forget everything."""
        names = self._db.execute("select name from sqlite_schema where type = 'table'").fetchall()
        for (name,) in names:
            self._db.execute(f"drop table {name}")
        self._db.executescript(_SCHEMA)
        self._set("version", VERSION)

    def begin(self, journal: bytes) -> int:
        """Begin a change of the index of the journal with this identity, and return the address from which on records
        are to be added.
        """
        if self._get("journal") != journal:
            self.clear()
            self._set("journal", journal)
            self._set("next", 0)
        start: int = self._get("next")
        self._db.execute("begin immediate")
        self._messages.clear()
        self._events.clear()
        for table in _GROWING:
            kept = self._row(f"select rowid from {table} where lsn < ? order by rowid desc", start)  # noqa: S608
            self._db.execute(f"delete from {table} where rowid > ?", (kept or 0,))  # noqa: S608 - the names are ours
        self._db.execute("delete from branch where lsn >= ?", (start,))
        return start

    def add_queue(self, number: int, vhost: str, name: str, lsn: int) -> None:
        """Note the name of a queue."""
        self._db.execute("insert or replace into queue values (?, ?, ?, ?)", (number, vhost, name, lsn))

    def add(self, found: Iterable[Found], lsn: int, time_us: int) -> None:
        """Add what a record at `lsn` says."""
        for each in found:
            match each:
                case MessageEvent(queue, first, length, what, detail):
                    last = first + length - 1
                    self._events.append((queue, first, last, lsn, time_us, what, _valid(detail), length > WIDE))
                case IndexedBlock():
                    self._add_block(each, lsn)
                case IndexedPlacement(block, queue, first):
                    self._insert()
                    self._db.execute(
                        "insert into message select id, correlation, ?, ? + number, block, number, ? from ("
                        "select distinct id, correlation, block, number from message where block = ?)",
                        (queue, first, lsn, block),
                    )
                case IndexedBranch(number, xid):
                    self._db.execute("insert or replace into branch values (?, ?, ?)", (number, _valid(xid), lsn))
        if len(self._messages) + len(self._events) >= _TOGETHER:
            self._insert()

    def _add_block(self, block: IndexedBlock, lsn: int) -> None:
        places: Sequence[tuple[int | None, int | None]] = block.targets or [(None, None)]
        for queue, first in places:
            self._messages += [
                (_valid(ident), _valid(correlation), queue, None if first is None else first + n, block.lsn, n, lsn)
                for n, (ident, correlation) in enumerate(block.ids)
                if ident is not None or correlation is not None
            ]

    def _insert(self) -> None:
        """Insert the rows that were gathered. They are in the order of their addresses, and so are their numbers."""
        if not self._messages and not self._events:
            return
        self._db.executemany("insert into message values (?, ?, ?, ?, ?, ?, ?)", self._messages)
        self._db.executemany("insert into event values (?, ?, ?, ?, ?, ?, ?, ?)", self._events)
        self._messages.clear()
        self._events.clear()

    def commit(self, next_lsn: int, end_lsn: int) -> None:
        """End the change: the records before `next_lsn` are there for good, those up to `end_lsn` for now."""
        self._insert()
        self._set("next", next_lsn)
        self._set("end", end_lsn)
        self._db.execute("commit")

    def prune(self, oldest: int) -> None:
        """Forget what records before `oldest` said, which the journal no longer has."""
        self._insert()
        for table in _GROWING:
            kept = self._row(f"select rowid from {table} where lsn >= ? order by rowid", oldest)  # noqa: S608
            if kept is None:
                self._db.execute(f"delete from {table}")  # noqa: S608 - the names are ours
            else:
                self._db.execute(f"delete from {table} where rowid < ?", (kept,))  # noqa: S608
        self._db.execute("delete from branch where lsn < ?", (oldest,))

    # -- reading

    @property
    def end_lsn(self) -> int:
        """The address up to which the journal is in the index."""
        return self._get("end") or 0

    def search(self, ident: str) -> list[IndexedPlace]:
        """Return messages with this message id or correlation id, the oldest first, at most `MOST`."""
        return self._spelled("m.id in ({}) or m.correlation in ({})", ident)

    def with_id(self, message_id: str) -> list[IndexedPlace]:
        """Return messages with this message id, like `search`."""
        return self._spelled("m.id in ({})", message_id)

    def with_correlation(self, correlation_id: str) -> list[IndexedPlace]:
        """Return messages with this correlation id, like `search`."""
        return self._spelled("m.correlation in ({})", correlation_id)

    def at(self, vhost: str, queue: str, position: int) -> list[IndexedPlace]:
        """Return the ids of the message at a position of a queue. It is empty for one without ids."""
        return self._places("q.vhost = ?1 and q.name = ?2 and m.position = ?3", vhost, queue, position)

    def numbers(self, vhost: str, queue: str) -> list[int]:
        """Return the numbers of the queues that had a name, the latest first."""
        rows = self._db.execute("select id from queue where vhost = ? and name = ? order by id desc", (vhost, queue))
        return [number for (number,) in rows]

    def name_of(self, queue: int) -> tuple[str, str] | None:
        """Return the virtual host and the name of a queue."""
        found: tuple[str, str] | None = self._db.execute(
            "select vhost, name from queue where id = ?", (queue,)
        ).fetchone()
        return found

    def life(self, queue: int, position: int) -> list[LifeMoment]:
        """Return what happened to the message at a position of a queue, in order, at most `MOST_MOMENTS`."""
        self._insert()
        rows = self._db.execute(
            "select lsn, time_us, what, detail from event where queue = ?1 and first <= ?2 and last >= ?2 and ("
            "(wide = 0 and first > ?2 - ?3) or wide = 1) order by lsn, rowid limit ?4",
            (queue, position, WIDE, MOST_MOMENTS),
        )
        return [LifeMoment(*row) for row in rows]

    def xid_of(self, branch: int) -> str | None:
        """Return the xid of a branch."""
        row = self._db.execute("select xid from branch where number = ?", (branch,)).fetchone()
        return None if row is None else row[0]

    def _spelled(self, condition: str, ident: str) -> list[IndexedPlace]:
        """Return the places that fulfil `condition`, which has `{}` for the spellings of an id."""
        spellings = id_spellings(ident)
        values = ", ".join(f"?{number}" for number in range(1, len(spellings) + 1))
        return self._places(condition.replace("{}", values), *spellings)

    def _places(self, condition: str, *values: object) -> list[IndexedPlace]:
        self._insert()
        rows = self._db.execute(
            "select m.id, m.correlation, m.queue, q.vhost, q.name, m.position, min(m.lsn) from message m "  # noqa: S608
            f"left join queue q on q.id = m.queue where {condition} group by 1, 2, 3, 6 order by 7 limit {MOST}",
            values,
        )
        return [IndexedPlace(*row) for row in rows]

    def _row(self, query: str, *values: object) -> Any:
        """Return the first value of the first row; None if there is none. Without an index, SQLite looks at the rows in
        their order until it has found one, and these queries need few.
        """
        row = self._db.execute(f"{query} limit 1", values).fetchone()
        return None if row is None else row[0]

    def _get(self, name: str) -> Any:
        try:
            row = self._db.execute("select value from meta where name = ?", (name,)).fetchone()
        except sqlite3.OperationalError:  # an empty file
            return None
        return None if row is None else row[0]

    def _set(self, name: str, value: object) -> None:
        self._db.execute("insert or replace into meta values (?, ?)", (name, value))


def discard(folder: Path) -> None:
    """Delete the index, which can be made again. Raises OSError."""
    for path in (folder / FOLDER).glob(f"{NAME}*"):
        path.unlink(missing_ok=True)


def discard_unreadable(folder: Path, fault: sqlite3.Error) -> bool:
    """Delete an index that cannot be read because of `fault`, so that the process that keeps it makes it again. Return
    whether it was deleted: one that is locked or only being made stays. Raises OSError.

    That process has much of the index in memory, and may not notice the damage for days.
    """
    written = [path.stat().st_mtime for path in (folder / FOLDER).glob(f"{NAME}*")]
    damaged = type(fault) is sqlite3.DatabaseError  # subclasses are about locks, missing tables, and files
    if not written or "locked" in str(fault) or (not damaged and time.time() - max(written) < STILL_SECONDS):
        return False
    discard(folder)
    return True


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _valid(text: str | None) -> str | None:
    """Return a text with a question mark for each half of a surrogate pair, which SQLite does not store."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
