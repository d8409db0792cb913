"""A resource manager for tests with PEP 249's two-phase commit, on files: it survives kills and injects faults.

A vault is a folder. The `work` of a branch is a text; `contents` is the committed text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from escrowmq.client import HeuristicOutcome, NotFound
from escrowmq.core.branches.xid import Xid

T = TypeVar("T")


class VaultXid(NamedTuple):
    format_id: int
    gtrid: str
    bqual: str


class Vault:
    """A resource manager.

    `fault` is called with `VAULT CALL` before each call takes effect, and `VAULT CALL done` after.
    """

    def __init__(self, folder: Path, fault: Callable[[str], object] = len) -> None:
        self.folder = folder
        self.fault = fault
        self.open = 0
        self.lists: int | None = None
        """The largest number of branches that `tpc_recover` lists."""
        self.mutex = threading.Lock()
        folder.mkdir(exist_ok=True)

    def connect(self) -> Connection:
        self.fault(f"{self.folder.name} connect")
        self.open += 1
        return Connection(self)

    def contents(self) -> list[str]:
        return sorted(path.read_text() for path in self.folder.glob("*.committed"))

    def in_doubt(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.prepared"))

    def by_hand(self, bqual: str, outcome: str) -> None:
        """Complete a branch as an operator: `committed`, `rolled back`, `mixed`, `hazard`, or `vanished`."""
        (path,) = self.folder.glob(f"*,{bqual}.prepared")
        if outcome == "vanished":
            path.unlink()
            return
        if outcome == "committed":
            (path.with_suffix(".committed")).write_text(path.read_text())
        path.rename(path.with_suffix(".heuristic")).write_text(outcome)


class Connection:
    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.closed = False
        self._xid: VaultXid | None = None
        self._work: list[str] = []
        self._prepared = False

    def xid(self, format_id: int, gtrid: str, bqual: str) -> VaultXid:
        return VaultXid(format_id, gtrid, bqual)

    def tpc_begin(self, xid: VaultXid) -> None:
        assert self._xid is None, "a connection has one branch at a time"
        self._call("begin", lambda: None)
        self._xid, self._work, self._prepared = xid, [], False

    def work(self, text: str) -> None:
        self._call("work", lambda: self._work.append(text))

    def tpc_prepare(self) -> bool:
        def prepare() -> bool:
            assert self._xid is not None
            self._prepared = bool(self._work)
            if self._work:
                new = self._path(self._xid, "new")
                new.write_text(" ".join(self._work))
                new.rename(self._path(self._xid, "prepared"))
            else:
                self._xid = None  # a read-only branch is over
            return bool(self._work)

        return self._call("prepare", prepare)

    def tpc_commit(self, xid: VaultXid | None = None) -> None:
        if xid is None:
            assert self._xid is not None
            xid = self._xid
            if not self._prepared and self._work:  # in one phase
                path = self._path(xid, "committed")
                self._call("commit", lambda: path.write_text(" ".join(self._work)))
                self._xid = None
                return
            if not self._work:
                self._xid = None
                return
        self._call("commit", lambda: self._end(xid, "commit"))
        self._xid = None

    def tpc_rollback(self, xid: VaultXid | None = None) -> None:
        if xid is None:
            assert self._xid is not None
            xid = self._xid
            if not self._path(xid, "prepared").exists() and not self._path(xid, "heuristic").exists():
                self._call("rollback", lambda: None)
                self._xid = None
                return
        self._call("rollback", lambda: self._end(xid, "rollback"))
        self._xid = None

    def tpc_recover(self) -> list[VaultXid]:
        def listed() -> list[VaultXid]:
            paths = [*self.vault.folder.glob("*.prepared"), *self.vault.folder.glob("*.heuristic")]
            found = [path.name.rpartition(".")[0].split(",") for path in paths]
            return [VaultXid(int(format_id), gtrid, bqual) for format_id, gtrid, bqual in found][: self.vault.lists]

        return self._call("recover", listed)

    def tpc_forget(self, xid: VaultXid) -> None:
        self._call("forget", lambda: self._path(xid, "heuristic").unlink())

    def rollback(self) -> None:
        """Do nothing: outside a branch there is nothing to roll back."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.vault.open -= 1

    def _path(self, xid: VaultXid, suffix: str) -> Path:
        return self.vault.folder / f"{xid.format_id},{xid.gtrid},{xid.bqual}.{suffix}"

    def _end(self, xid: VaultXid, asked: str) -> None:
        heuristic = self._path(xid, "heuristic")
        if heuristic.exists():
            raise HeuristicOutcome(Xid(1, b"g", b"b"), heuristic.read_text(), asked)
        prepared = self._path(xid, "prepared")
        if not prepared.exists():
            raise NotFound(404, "unknown xid")
        if asked == "commit":
            prepared.rename(self._path(xid, "committed"))
        else:
            prepared.unlink()

    def _call(self, what: str, effect: Callable[[], T]) -> T:
        if self.closed:
            raise ConnectionError("the connection is closed")
        try:
            self.vault.fault(f"{self.vault.folder.name} {what}")
            with self.vault.mutex:
                result = effect()
            self.vault.fault(f"{self.vault.folder.name} {what} done")
        except ConnectionError:
            self.close()
            raise
        return result
