"""A leader appends each snapshot that takes effect to the replicated log, and trims what no reader needs any more."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from escrowmq.journal.format import TYPE_SEGMENT, parse_name, snapshot_name
from escrowmq.journal.storage import Storage
from escrowmq.replica.entries import CHUNK_SIZE
from escrowmq.server.replica.follower import Follower
from escrowmq.server.replica.shipper import Shipper

_THREAD: Final = "replicated-snapshots"

_log = logging.getLogger("escrowmq.replication")


class SnapshotShipping:
    """Appends snapshots on a thread of its own, piece by piece, so that frames are appended in between."""

    def __init__(self, follower: Follower, shipper: Shipper, storage: Storage) -> None:
        self._follower = follower
        self._shipper = shipper
        self._storage = storage
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=_THREAD)
        self._stopping = False

    def ship(self, lsn: int, oldest_lsn: int) -> None:
        """Append the snapshot up to `lsn` soon, then trim. `oldest_lsn` is where the oldest segment begins that has
        living messages.
        """
        if lsn and not self._stopping:
            self._thread.submit(self._ship, lsn, oldest_lsn)

    def stop(self) -> None:
        """Begin nothing more, and wait for the piece that is on its way. What is not whole never counts."""
        self._stopping = True
        self._thread.shutdown(cancel_futures=True)

    def _ship(self, lsn: int, oldest_lsn: int) -> None:
        leader, name = self._follower.leader, snapshot_name(lsn)
        known = self._follower.tail.fold.snapshot
        try:
            if known is None or known.lsn < lsn:
                size, at = self._storage.size(name), 0
                while at < size and not self._stopping:
                    piece = self._storage.read(name, at, CHUNK_SIZE)
                    self._shipper.call(partial(leader.put_piece, lsn, size, at, piece))
                    at += len(piece)
            if not self._stopping:
                self._shipper.call(partial(leader.trim, oldest_lsn))
                files = (parse_name(each) for each in self._storage.names())
                living = {at for kind, at in filter(None, files) if kind == TYPE_SEGMENT}
                self._shipper.call(partial(leader.put_map, living))
                self._shipper.call(self._follower.write_places)
        except FileNotFoundError:
            pass  # a newer one has replaced it, and follows
        except OSError as error:
            _log.error("snapshot %s cannot be appended to the replicated log: %s", name, error)
