"""The decision log: the transactions to commit, on disk before any participant is told.

Presumed abort: only decisions to commit are written, and a transaction without one is rolled back. A log that lost
decisions would therefore be worse than none. The design prevents that:

- A decision is one SQLite transaction, synced when it returns (WAL, synchronous=EXTRA). Decisions of several threads
  share one sync. The removal of a finished transaction is written with a later decision, without a sync of its own.
- After a failed write, the content of the disk is unknown. The log then counts as failed and decides nothing, neither
  commit nor rollback, until `reopen` has read the file, written all of it again, and synced that.
- Every opening rewrites the content before anyone acts on it: a decision that was read from the page cache but never
  reached the disk would be gone after the next power failure.
- Rows have checksums, and the head has one over all rows; an inconsistent log is refused.
- Space for a thousand decisions is reserved at the start, so that a disk that fills up later does not stop decisions.

One file belongs to one manager, and the process that uses it holds a lock. Reading needs no lock. A forked child leaves
log and lock to its parent: two processes with one SQLite connection would damage the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from escrowmq.xa.errors import LogDamaged, LogError, LogInUse
from escrowmq.xa.states import COMMIT, BranchState
from escrowmq.xa.xids import new_identity

FORMAT: Final = 1
_CHECKPOINT_PAGES: Final = 256
_RESERVE_BYTES: Final = 5 * 4096 * _CHECKPOINT_PAGES // 4

_SCHEMA: Final = (
    """CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER NOT NULL, manager TEXT NOT NULL,
    identity TEXT NOT NULL, opened INTEGER NOT NULL, sum TEXT NOT NULL)""",
    "CREATE TABLE decision (gtrid TEXT PRIMARY KEY, body TEXT NOT NULL, sum TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE reserve (room BLOB)",
)


class Decision(NamedTuple):
    """The outcome of a transaction, and each branch's state as far as it is known.

    `branches` is by branch qualifier.
    """

    gtrid: str
    outcome: str
    decided_at: float
    branches: Mapping[str, BranchState]

    def body(self) -> str:
        """Return the text that the log stores."""
        return json.dumps([self.outcome, self.decided_at, dict(self.branches)], separators=(",", ":"))

    @classmethod
    def of(cls, gtrid: str, body: str) -> Decision:
        """Parse the text that the log stores."""
        outcome, decided_at, branches = json.loads(body)
        return cls(gtrid, outcome, decided_at, {bqual: BranchState(state) for bqual, state in branches.items()})


class Contents(NamedTuple):
    """The content of a log."""

    manager: str
    identity: str
    opened: int
    decisions: dict[str, Decision]


@dataclass(eq=False)
class _Batch:
    changes: list[Decision] = field(default_factory=list)
    done: bool = False
    error: LogError | None = None


class DecisionLog:
    """A decision log, opened with the manager's name. The file is created if it does not exist. Thread-safe.

    Raises:
        LogInUse: Another running manager uses the log.
        LogDamaged: The log is damaged.
        LogError: The log cannot be opened; the text has the system's reason.
    """

    def __init__(self, path: str | os.PathLike[str], manager: str) -> None:
        self.path = Path(path).absolute()
        self.manager = manager
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._gathering = _Batch()
        self._finished: set[str] = set()
        self._failure: LogError | None = None
        self._database: sqlite3.Connection | None = None
        self._decisions: dict[str, Decision] = {}
        self._sum = 0
        self.identity = ""
        self._lock = _lock(self.path)
        _logs.add(self)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    # ---- decisions ----

    def decisions(self) -> dict[str, Decision]:
        """Return all unfinished decisions. Raises LogError if the log has failed, because they are then unknown."""
        with self._mutex:
            self._check()
            return {gtrid: found for gtrid, found in self._decisions.items() if gtrid not in self._finished}

    def get(self, gtrid: str) -> Decision | None:
        """Return a decision; None means that the transaction is to be rolled back.

        Raises LogError if the log has failed.
        """
        with self._mutex:
            self._check()
            return None if gtrid in self._finished else self._decisions.get(gtrid)

    @property
    def failure(self) -> LogError | None:
        """The reason why the log has failed, or None."""
        return self._failure

    def write(self, decision: Decision) -> None:
        """Write a decision. It is on disk on return.

        Raises:
            LogError: The log had failed before, or with `uncertain` set: the write failed, and with it the log.
        """
        with self._mutex:
            self._check()
            batch = self._gathering
            batch.changes.append(decision)
        with self._writing:  # the first thread writes for all threads that wait here
            if not batch.done:
                with self._mutex:
                    self._gathering = _Batch()
                self._write(batch)
        if batch.error is not None:
            raise batch.error

    def finish(self, gtrid: str) -> None:
        """Remove a decision that all participants have acknowledged, with the next write or when the log is closed."""
        with self._mutex:
            if gtrid in self._decisions:
                self._finished.add(gtrid)

    # ---- opening and closing ----

    def reopen(self) -> None:
        """After a failure, read the file, write its content again and sync that. Raises LogError if that fails too."""
        with self._writing:
            if self._failure is None:
                return
            if self._lock < 0:  # closed; another manager may be using the file
                raise LogError(str(self._failure))
            self._disconnect()
            try:
                self._open()
            except LogError as error:
                with self._mutex:
                    self._failure = error
                raise
            with self._mutex:
                self._failure = None

    def close(self) -> None:
        """Remove finished decisions, close the file and release the lock."""
        with self._writing:
            if self._database is not None and self._failure is None and self._finished:
                self._write(_Batch())
            with self._mutex:
                self._failure = self._failure or LogError(f"the decision log {self.path} is closed")
            self._disconnect()
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # also if forked children have the descriptor open
            os.close(self._lock)
            self._lock = -1

    def leave_to_parent(self) -> None:
        """In a forked child: stop using the log, without closing files that the parent uses too."""
        _left.append(self._database)
        self._database = None
        self._mutex = threading.Lock()  # a thread of the parent may hold the old ones
        self._writing = threading.Lock()
        self._failure = LogError(f"the decision log {self.path} belongs to the parent of process {os.getpid()}")
        if self._lock >= 0:
            os.close(self._lock)  # the parent's lock remains
            self._lock = -1

    def _check(self) -> None:
        if self._failure is not None:
            raise LogError(str(self._failure))

    def _open(self) -> None:
        try:
            self._database = database = self._connect()
            found = _read(database, self.path)
            self._renew(database, found)
        except LogError:
            self._disconnect()
            raise
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            raise _log_error(error, self.path) from error

    def _connect(self) -> sqlite3.Connection:
        # psow=0 assumes that a write can damage its whole sector, so new content never shares one with older content.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(
            f"file:{quote(str(self.path))}?psow=0", uri=True, isolation_level=None, check_same_thread=False, timeout=10
        )
        (mode,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise OSError(f"its file system does not support a write-ahead log (journal mode {mode})")
        for pragma in ("synchronous=EXTRA", "fullfsync=1", "checkpoint_fullfsync=1"):
            database.execute(f"PRAGMA {pragma}")
        database.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        return database

    def _renew(self, database: sqlite3.Connection, found: Contents | None) -> None:
        if found is not None and found.manager != self.manager:
            raise LogError(
                f"the decision log {self.path} belongs to the manager {found.manager!r}, not {self.manager!r}"
            )
        contents = found or Contents(self.manager, new_identity(), 0, {})
        database.execute("BEGIN IMMEDIATE")
        if found is None:
            for statement in _SCHEMA:
                database.execute(statement)
        database.execute("DELETE FROM decision")
        rows = [_row(decision) for decision in contents.decisions.values()]
        database.executemany("INSERT INTO decision VALUES (?, ?, ?)", rows)
        head = (1, FORMAT, self.manager, contents.identity, contents.opened + 1, _text(_sum(rows)))
        database.execute("INSERT OR REPLACE INTO head VALUES (?, ?, ?, ?, ?, ?)", head)
        database.execute("INSERT INTO reserve VALUES (zeroblob(?))", (_RESERVE_BYTES,))
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(RESTART)")
        database.execute("DELETE FROM reserve")
        with self._mutex:
            self.identity = contents.identity
            self._decisions = dict(contents.decisions)
            self._finished &= self._decisions.keys()
            self._sum = _sum(rows)

    def _disconnect(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    # ---- writing ----

    def _write(self, batch: _Batch) -> None:
        """Write a batch. Only one thread at a time calls this."""
        with self._mutex:
            try:
                self._check()
            except LogError as error:  # the log had failed before this batch was written
                batch.error, batch.done = error, True
                return
            finished = set(self._finished)
        changes = {decision.gtrid: decision for decision in batch.changes}
        going = [self._decisions[gtrid] for gtrid in {*finished, *changes} if gtrid in self._decisions]
        total = self._sum ^ _sum(map(_row, going)) ^ _sum(map(_row, changes.values()))
        try:
            self._commit(changes.values(), finished - changes.keys(), total)
        except BaseException as error:  # also an interrupt: the commit may have happened before it
            batch.error = LogError(f"the decision log {self.path} cannot be written: {error}", uncertain=True)
            batch.done = True
            with self._mutex:
                self._failure = batch.error
            self._disconnect()
            if not isinstance(error, sqlite3.Error | OSError):
                raise
        else:
            with self._mutex:
                for decision in going:
                    del self._decisions[decision.gtrid]
                self._decisions.update(changes)
                self._finished -= finished
                self._sum = total
        batch.done = True

    def _commit(self, changes: Iterable[Decision], finished: Iterable[str], total: int) -> None:
        database = self._database
        assert database is not None, "a log that has not failed is open"
        database.execute("BEGIN IMMEDIATE")
        database.executemany("DELETE FROM decision WHERE gtrid = ?", [(gtrid,) for gtrid in finished])
        database.executemany("INSERT OR REPLACE INTO decision VALUES (?, ?, ?)", [_row(change) for change in changes])
        database.execute("UPDATE head SET sum = ?", (_text(total),))
        database.execute("COMMIT")


_logs: weakref.WeakSet[DecisionLog] = weakref.WeakSet()
_left: list[sqlite3.Connection | None] = []
"""The parents' database connections, kept so that the garbage collector does not close them."""


def _forked() -> None:
    for log in list(_logs):
        log.leave_to_parent()


os.register_at_fork(after_in_child=_forked)


def read(path: str | os.PathLike[str]) -> Contents:
    """Read a log, even while a manager uses it. Raises LogError or LogDamaged."""
    path = Path(path)
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
            found = _read(database, path)
    except sqlite3.Error as error:
        raise _log_error(error, path) from error
    if found is None:
        raise LogError(f"{path} is not a decision log")
    return found


def commit_decision(gtrid: str, bquals: Iterable[str]) -> Decision:
    """Return the decision to commit the prepared branches `bquals` of a transaction."""
    return Decision(gtrid, COMMIT, time.time(), dict.fromkeys(bquals, BranchState.PREPARED))


def _read(database: sqlite3.Connection, path: Path) -> Contents | None:
    """Read a log; None if the file is new. Uses one read transaction, so a manager may write meanwhile."""
    try:
        database.execute("BEGIN")
        try:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                return None
            if not {"head", "decision", "reserve"} <= tables:
                raise LogDamaged(f"{path} is not a decision log, or is damaged: it has the tables {sorted(tables)}")
            verdict = [text for (text,) in database.execute("PRAGMA integrity_check")]
            heads = database.execute("SELECT format, manager, identity, opened, sum FROM head").fetchall()
            rows = database.execute("SELECT gtrid, body, sum FROM decision").fetchall()
        finally:
            database.execute("ROLLBACK")
        if verdict != ["ok"] or len(heads) != 1:
            raise LogDamaged(f"the decision log {path} is damaged: {_first_lines(verdict)}")
        version, manager, identity, opened, total = heads[0]
        if version != FORMAT:
            raise LogError(f"the decision log {path} has format {version}; this program reads format {FORMAT}")
        if any(_digest(gtrid, body) != checksum for gtrid, body, checksum in rows) or _text(_sum(rows)) != total:
            raise LogDamaged(f"the decision log {path} is damaged: its checksums do not match its content")
        return Contents(manager, identity, opened, {gtrid: Decision.of(gtrid, body) for gtrid, body, _ in rows})
    except (TypeError, ValueError) as error:
        raise LogDamaged(f"the decision log {path} is damaged: {error}") from error


def _log_error(error: sqlite3.Error | OSError, path: Path) -> LogError:
    # SQLite reports invalid content as DatabaseError, and errors of the system as its subclass OperationalError.
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return LogDamaged(f"the decision log {path} is damaged: {error}")
    return LogError(f"the decision log {path} cannot be used: {error}")


def _row(decision: Decision) -> tuple[str, str, str]:
    body = decision.body()
    return decision.gtrid, body, _digest(decision.gtrid, body)


def _digest(gtrid: str, body: str) -> str:
    return hashlib.blake2b(f"{gtrid}\0{body}".encode(), digest_size=16).hexdigest()


def _sum(rows: Iterable[tuple[str, str, str]]) -> int:
    """Return the checksum of all rows. It does not depend on their order, so it can be updated incrementally."""
    return reduce(xor, (int(checksum, 16) for _, _, checksum in rows), 0)


def _first_lines(verdict: list[str]) -> str:
    return "; ".join(" ".join(verdict).splitlines()[:3])


def _text(total: int) -> str:
    return f"{total:032x}"


def _lock(path: Path) -> int:
    """Lock a file beside the log: closing any descriptor of SQLite's own file would drop SQLite's locks."""
    name = path.with_name(path.name + ".lock")
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LogError(f"the decision log {path} cannot be used: {error.strerror}: {name}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise LogInUse(f"the decision log {path} is in use by process {pid or '?'}") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd
