"""The thread of a standby: it follows the replicated log, and claims the leadership when the leader is silent."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Final, NamedTuple

from escrowmq.journal.storage import Storage
from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.leader import Leader
from escrowmq.replica.log import ReplicatedLog
from escrowmq.replica.patience import LeasePatience
from escrowmq.replica.tail import LogTail

POLL_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 0.5
SYNC_SECONDS: Final = 1.0
_TAKE_OVERS: Final = 100

_log = logging.getLogger("escrowmq.replication")


class TakeOver(NamedTuple):
    """A node that took over, and when this node saw it, in seconds since the epoch."""

    epoch: int
    node: str
    url: str
    seen: float


@dataclass(slots=True)
class Standing:
    """What a node knows about itself and the leader. Read by other threads."""

    node: str
    role: str = "standby"
    epoch: int = 0
    leader: str = ""
    leader_url: str = ""
    lsn: int = 0
    position: int = 0
    fault: str = ""
    """Why the log cannot be read; empty if it can."""
    take_overs: deque[TakeOver] = field(default_factory=lambda: deque(maxlen=_TAKE_OVERS))


def process_name(node: str) -> str:
    """Return a name for one start of a node."""
    return f"{node}#{secrets.token_hex(4)}"


def node_of(name: str) -> str:
    """Return the node's name in that of a process."""
    return name.rpartition("#")[0] or name


class LoggedEvents:
    """Writes what happened to the copy into the log of the process."""

    def cut(self, lsn: int, frames: int) -> None:
        """See `CopyEvents.cut`."""
        _log.warning("cut off %d frame at LSN %#x, which was written here and never counted", frames, lsn)

    def diverged(self, lsn: int, frames: int, names: list[str]) -> None:
        """See `CopyEvents.diverged`."""
        _log.error(
            "the replicated log has lost %d frames from LSN %#x on, and other nodes went on without them; they are "
            "kept in %s of the data directory. Messages in them were confirmed and are not in the broker any more: see "
            "docs/guides/replication.md",
            *(frames, lsn, ", ".join(names)),
        )


class Follower:
    """Follows the log on the thread that calls `run`."""

    def __init__(
        self,
        log: ReplicatedLog,
        storage: Storage,
        node: str,
        url: str,
        lease_seconds: float,
        *,
        chain_contents: bool,
    ) -> None:
        self._log = log
        self._lease = lease_seconds
        self.standing = Standing(node)
        self.copy = DiskCopy(storage, LoggedEvents(), chain_contents=chain_contents)
        self.tail = LogTail(log, self.copy, log.begin())
        self.leader = Leader(log, self.tail, process_name(node), url)
        self._stop = Event()
        self._synced = (0, 0.0)

    def stop(self) -> None:
        """Let `run` return soon. May be called on any thread."""
        self._stop.set()

    def run(self, followed: Callable[[], None] = lambda: None) -> bool:
        """Follow until this node leads, and return True; False after `stop`.

        `followed` is called when the end of the log is reached for the first time. Raises ReplicaError.
        """
        patience = LeasePatience(self._lease, time.monotonic())
        while not self._stop.is_set():
            try:
                self.tail.read_to_end()
                self._sync(time.monotonic())
                self.note()
                followed()
                followed = lambda: None  # noqa: E731
                fold = self.tail.fold
                led, resigned = fold.leader is not None, fold.resigned
                over = patience.is_over(time.monotonic(), self.tail.counted, led=led, resigned=resigned)
                if self.leader.leads or (over and self._claim()):
                    self._prepare()
                    return True
                if over:
                    patience.begin_again(time.monotonic())
            except OSError as error:
                if not self.standing.fault:
                    _log.warning("the replicated log cannot be read: %s", error)
                self.standing.fault = str(error)
                patience.begin_again(time.monotonic())
                self._stop.wait(RETRY_SECONDS)
                continue
            if self.standing.fault:
                _log.warning("the replicated log can be read again")
                self.standing.fault = ""
            self._stop.wait(POLL_SECONDS)
        self.copy.sync()
        return False

    def note(self) -> None:
        """Note where this node is."""
        fold, standing = self.tail.fold, self.standing
        standing.lsn, standing.position = self.copy.end_lsn, self.tail.position
        if fold.leader is not None and fold.epoch != standing.epoch:
            standing.epoch, standing.leader_url = fold.epoch, fold.leader.url
            standing.leader = node_of(fold.leader.node)
            standing.take_overs.append(TakeOver(fold.epoch, standing.leader, fold.leader.url, time.time()))
            _log.info("node %s leads since epoch %d: %s", standing.leader, fold.epoch, fold.leader.url)

    def _sync(self, now: float) -> None:
        end, at = self._synced
        if self.copy.end_lsn != end and now - at >= SYNC_SECONDS:
            self.copy.sync()
            self._synced = self.copy.end_lsn, now

    def _claim(self) -> bool:
        _log.info("no node leads: this one claims epoch %d", self.tail.fold.epoch + 1)
        leads = self.leader.take_over()
        self.note()
        return leads

    def _prepare(self) -> None:
        """Let the journal's writer begin where the log ends."""
        self._put_back()
        self.copy.hand_over()
        self.standing.role = "leader"
        self.note()

    def _put_back(self) -> None:
        """Append what only this node has: a frame that was not answered, or frames that the log has lost."""
        for part in list(self.copy.ahead()):
            _log.warning("appending %d frames that the replicated log does not have", len(part.frames))
            if part.header:
                self.leader.begin_segment(part.header, part.messages)
            for frame in part.frames:
                self.leader.append_frame(frame.lsn, [bytes(frame.head), bytes(frame.body)])
