"""A node's place in the replicated log, and its copy of the journal up to there."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from escrowmq.journal.format import parse_name, segment_name
from escrowmq.journal.storage import Storage
from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.entries import ID_SIZE
from escrowmq.replica.errors import EntriesLost, EntriesTrimmed
from escrowmq.replica.leader import Leader
from escrowmq.replica.live_map import begun_by_map
from escrowmq.replica.log import ReplicatedLog
from escrowmq.replica.tail import LogTail, SegmentPlace
from escrowmq.server.replica.node_view import NodeView
from escrowmq.server.replica.places import PlaceNotes

SYNC_SECONDS: Final = 1.0
END_SECONDS: Final = 1.0
"""The time after which a standby asks again where the log ends, which takes longer than to read on."""
COPYING: Final = "replica.copying"
"""The file that is there while an empty node copies what lives. Without the rest, its segments are of no use."""

_log = logging.getLogger("escrowmq.replication")


class LoggedEvents:
    """Writes what happened to the copy into the log of the process. `on_diverged` is as in `NodeView`."""

    def __init__(self, on_diverged: Callable[[], None] = lambda: None) -> None:
        self._on_diverged = on_diverged

    def cut(self, lsn: int, frames: int) -> None:
        """See `CopyEvents.cut`."""
        _log.warning("cut off %d frame at LSN %#x, which was written here and never counted", frames, lsn)

    def diverged(self, lsn: int, frames: int, names: list[str]) -> None:
        """See `CopyEvents.diverged`."""
        _log.error(
            "this node has %d frames from LSN %#x on that the replicated log does not have: its engine lost them, or "
            "this node went on without it. Other nodes have gone on without these frames, so they are kept in %s of "
            "the data directory. Messages in them were confirmed and are not in the broker any more: see "
            "docs/guides/replication.md",
            *(frames, lsn, ", ".join(names)),
        )
        self._on_diverged()


class Following:
    """Reads the log into the copy. `copy`, `tail` and `leader` are others after each of `open` and `begin_by_map`.

    `name` is that of the log, without a password.
    """

    def __init__(
        self, log: ReplicatedLog, name: str, storage: Storage, view: NodeView, url: str, *, chain_contents: bool
    ) -> None:
        self._log = log
        self._storage = storage
        self._view = view
        self._url = url
        self._chain_contents = chain_contents
        self._synced_at = 0.0
        self._places = PlaceNotes(storage, name)
        view.take_overs.extend(self._places.take_overs())
        self.open(self._places.segments())

    def open(self, places: Sequence[SegmentPlace]) -> None:
        """Begin to read, at one of `places` that this node's files reach, or at the beginning. Raises OSError."""
        names = self._storage.names()
        places = [place for place in places if segment_name(place.lsn) in names]
        copy = self._new_copy()
        self._use(copy, LogTail.opened(self._log, copy, places))

    def _new_copy(self) -> DiskCopy:
        return DiskCopy(self._storage, LoggedEvents(self._diverged), chain_contents=self._chain_contents)

    def _diverged(self) -> None:
        self._view.on_diverged()

    def _use(self, copy: DiskCopy, tail: LogTail) -> None:
        self.copy, self.tail = copy, tail
        self._at_end_at = -math.inf  # the whole log first: this node's files may be ahead of what is read in pieces
        self.leader = Leader(self._log, tail, self._view.node, self._url, partial(secrets.token_bytes, ID_SIZE))

    def begin_by_map(self) -> bool:
        """If this node's files are empty, copy only what lives, and return whether the log had a map of that.

        Raises ReplicaError and OSError.
        """
        names = self._storage.names()
        if COPYING in names:  # the last start was interrupted
            for name in names:
                if parse_name(name) is not None:
                    self._storage.delete(name)
        elif any(parse_name(name) is not None for name in names):
            return False
        self._storage.create(COPYING)
        self._storage.sync(COPYING)
        self._storage.finish(COPYING)
        before = self.copy
        copy = self.copy = self._new_copy()  # its end shows operators how far this node is
        if self._log.end() > self._log.begin():
            _log.info("this node has no journal, and copies it from the replicated log")
        try:
            tail = begun_by_map(self._log, copy)
        except EntriesLost as error:  # the leader may just have trimmed it
            raise EntriesTrimmed(self._log.begin(), error.position) from error
        if tail is None:
            self.copy = before
            self._storage.delete(COPYING)
            return False
        self._use(copy, tail)
        return True

    def check_map(self) -> None:
        """Raise EntriesTrimmed if the map of what lives does not count, so that the whole log has to be read."""
        if not self.tail.fold.map:
            raise EntriesTrimmed(self._log.begin(), 0)
        self.sync()
        self._storage.delete(COPYING)

    def read_to_end(self) -> bool:
        """Read the log to its end, and return whether anything counted. Raises ReplicaError and OSError."""
        counts = self._read(self.tail.read_to_end)
        self._at_end_at = self._view.followed_at
        return counts

    def read_on(self) -> bool:
        """Read what the log shows at a glance, and everything now and then. Otherwise as `read_to_end`."""
        if time.monotonic() - self._at_end_at >= END_SECONDS:
            return self.read_to_end()
        return self._read(self.tail.read_on)

    def _read(self, read: Callable[[], None]) -> bool:
        before, view = self.tail.counted, self._view
        read()
        view.followed_at = time.monotonic()
        counts = self.tail.counted != before
        if counts:
            view.heard_at = view.followed_at
            if time.monotonic() - self._synced_at >= SYNC_SECONDS:
                self.sync()
        view.note(self.tail.fold)
        return counts

    def sync(self) -> None:
        """Sync the copy, and note where this node is. Raises OSError."""
        self.copy.sync()
        self._synced_at = time.monotonic()
        self.write_places()

    def sync_all(self) -> int:
        """Copy everything that the log had when this was called, and return the LSN below which all is on disk.

        Raises ReplicaError and OSError.
        """
        self.leader.catch_up(self.copy.end_lsn, round(time.time() * 1000))
        end = self.copy.end_lsn
        self.sync()
        return max(end, self.copy.snapshot_lsn)  # a snapshot takes effect after a sync

    def write_places(self) -> None:
        """Note where the segments begin, if that has changed. Raises OSError."""
        self._places.write(list(self.tail.segments), self._view.reported_take_overs(self.tail.fold))
