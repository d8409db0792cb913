"""The thread of a standby: it follows the replicated log until this node leads."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final

from escrowmq.journal.storage import Storage
from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.entries import TakeOverReason
from escrowmq.replica.errors import AppendUnknown, EntriesLost, EntriesTrimmed, ReplicaError
from escrowmq.replica.leader import Leader
from escrowmq.replica.log import ReplicatedLog
from escrowmq.replica.tail import LogTail, SegmentPlace
from escrowmq.server.replica.candidate import Candidate
from escrowmq.server.replica.following import Following
from escrowmq.server.replica.names import NameCheck
from escrowmq.server.replica.node_view import NodeView
from escrowmq.server.replica.places import TakeOver
from escrowmq.server.replica.reports import Reports
from escrowmq.text import counted

POLL_SECONDS: Final = 0.1
"""The time between two looks at the log. Each look costs more than the entries that it finds."""
GONE_POLL_SECONDS: Final = 0.01
"""The same once the leader's process has ended."""
RETRY_SECONDS: Final = 0.5
_UNREAD: Final = "the replicated log cannot be read"
_UNCLAIMED: Final = "no node leads, and the replicated log does not take the claim of this one"

_log = logging.getLogger("escrowmq.replication")


class Follower:
    """Follows the log on the thread that calls `run`. `name` is that of the log, without a password."""

    def __init__(
        self,
        log: ReplicatedLog,
        name: str,
        storage: Storage,
        node: str,
        url: str,
        silence_seconds: float,
        *,
        chain_contents: bool,
        disk_limit: int = 0,
    ) -> None:
        """`disk_limit` is the number of free bytes below which a leader on this disk would block publishers."""
        self.url = url
        self.view = NodeView(node)
        self._following = Following(log, name, storage, self.view, url, chain_contents=chain_contents)
        self._candidate = Candidate(
            self._following, self.view, url, silence_seconds, lambda: storage.free_bytes() < disk_limit
        )
        self._reports = Reports(self._following)
        self._names = NameCheck(node, url)
        self._unreadable = ""
        """Why the log was read again from its beginning, until it was read to its end."""
        self._stop = Event()
        self._wake = Event()
        self._candidate.presence.on_gone = self._wake.set
        self._syncs: SimpleQueue[Future[int]] = SimpleQueue()

    @property
    def copy(self) -> DiskCopy:
        """This node's copy of the journal."""
        return self._following.copy

    @property
    def tail(self) -> LogTail:
        """This node's place in the log."""
        return self._following.tail

    @property
    def leader(self) -> Leader:
        """Appends entries of this node."""
        return self._following.leader

    @property
    def claimed(self) -> tuple[TakeOverReason, float]:
        """See `Candidate.claimed`."""
        return self._candidate.claimed

    def take_overs(self) -> list[TakeOver]:
        """See `NodeView.reported_take_overs`."""
        return self.view.reported_take_overs(self.tail.fold)

    def write_places(self) -> None:
        """See `Following.write_places`."""
        self._following.write_places()

    def stop(self) -> None:
        """Let `run` return soon. May be called on any thread."""
        self._stop.set()
        self._wake.set()

    def sync(self) -> Future[int]:
        """Have everything copied and synced that was confirmed before this call, by whichever node.

        The result is the LSN below which all of it is on this node's disk, or the ReplicaError or OSError that has
        prevented it. It comes while `run` runs. May be called on any thread.
        """
        asked: Future[int] = Future()
        self._syncs.put(asked)
        self._wake.set()
        return asked

    def run(self, followed: Callable[[], None] = lambda: None) -> bool:
        """Follow until this node leads, and return True; False after `stop`.

        `followed` is called when the end of the log is reached for the first time. Raises ReplicaError.
        """
        self._candidate.presence.start()
        try:
            return self._run(followed)
        finally:
            self._candidate.presence.stop()
            for each in self._asked():
                each.set_exception(ConnectionAbortedError("this node is no standby any more"))

    def _run(self, followed: Callable[[], None]) -> bool:
        whole = mapped = False
        empty = True
        again: Sequence[SegmentPlace] | None = None
        following, candidate = self._following, self._candidate
        while not self._stop.is_set():
            try:
                if empty:
                    empty, mapped = False, following.begin_by_map()
                if again is not None:
                    following.open(again)
                    again = None
                read = following.read_to_end if candidate.is_gone else following.read_on
                if read():
                    candidate.heard()
                if mapped:
                    mapped = False
                    following.check_map()
                if not whole:
                    whole = True
                    following.sync()
                    followed()
                self._names.check(self.tail.fold)
                self._sync_if_asked()
                candidate.look_for_leader()
                self._reports.give(silent=candidate.is_silent)
                if self.leader.leads or candidate.take_over():
                    self._prepare()
                    self._fault("")
                    return True
            except (OSError, AppendUnknown) as error:
                if self.tail.interrupted and again is None:
                    again = self.tail.segments
                self._fault(str(error), "the copy of the journal cannot be written" if again is not None else _UNREAD)
                candidate.heard()  # the leader may be there, but cannot be heard
                self._stop.wait(RETRY_SECONDS)
                continue
            except (EntriesLost, EntriesTrimmed) as error:
                if isinstance(error, EntriesLost):
                    candidate.found_loss()
                again = ()
                self._read_again(str(error))
                continue
            self._unreadable = ""
            self._fault(candidate.refusal, _UNCLAIMED)
            self._wake.wait(GONE_POLL_SECONDS if candidate.is_gone else POLL_SECONDS)
            self._wake.clear()
        self.copy.sync()
        return False

    def _asked(self) -> list[Future[int]]:
        """Return what `sync` has returned since the last call, and somebody still waits for."""
        found: list[Future[int]] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._syncs.get_nowait())
        return [each for each in found if each.set_running_or_notify_cancel()]

    def _sync_if_asked(self) -> None:
        asked = self._asked()
        if not asked:
            return
        try:
            lsn = self._following.sync_all()
        except (OSError, ReplicaError) as error:
            for each in asked:
                each.set_exception(error)
            raise
        for each in asked:
            each.set_result(lsn)

    def _fault(self, text: str, what: str = "") -> None:
        """Note why this node can neither follow nor lead, and what fails; nothing if it can."""
        if text and not self.view.fault:
            _log.warning("%s: %s", what, text)
        if self.view.fault and not text:
            _log.warning("this node follows the replicated log again")
        self.view.fault = text

    def _read_again(self, reason: str) -> None:
        """Tell why the log is read again from its beginning. If that has just failed for the same reason, it probably
        fails until somebody mends the log.
        """
        if reason == self._unreadable:
            self._fault(reason, "the replicated log cannot be read, see docs/guides/replication.md")
            self._stop.wait(RETRY_SECONDS)
        else:
            _log.warning("%s; this node reads the log again", reason)
            self._unreadable = reason
            self._stop.wait(POLL_SECONDS)

    def _prepare(self) -> None:
        """Append what only this node has, and let the journal's writer begin where the log ends."""
        restored = self.leader.restore(list(self.copy.pieces_ahead()), self.copy.newest_snapshot())
        if restored:
            _log.warning("appended %s that the replicated log did not have", counted(restored, "frame"))
        self.copy.hand_over()
        self.view.role = "leader"
        self.view.note(self.tail.fold)
