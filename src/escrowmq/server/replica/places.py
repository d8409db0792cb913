"""The file `replica.state`: where segments begin in the replicated log, a hint for the next start, and who has led."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from escrowmq.journal.storage import Storage
from escrowmq.replica.tail import SegmentPlace


class TakeOver(NamedTuple):
    """A node that took over from `before`, at a time in seconds since the epoch, as far as this node knows.

    `reason` is the name of a `TakeOverReason` in lower case, or empty. For `seconds`, no node served clients.
    """

    epoch: int
    node: str
    url: str
    seen: float
    before: str = ""
    reason: str = ""
    seconds: float | None = None


NAME: Final = "replica.state"
_MOST: Final = 1 << 20


def read_places(storage: Storage, log: str) -> list[SegmentPlace]:
    """Return the places in the log of this name; none if the file is of another one, or cannot be read."""
    try:
        found = json.loads(storage.read(NAME, 0, _MOST))
        if found["log"] != log:
            return []
        return [
            SegmentPlace(each["lsn"], each["position"], each["epoch"], bytes.fromhex(each["chain"]))
            for each in found["segments"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def read_take_overs(storage: Storage, log: str) -> list[TakeOver]:
    """Return the take-overs on the log of this name; none if the file is of another one, or cannot be read."""
    try:
        found = json.loads(storage.read(NAME, 0, _MOST))
        return [TakeOver(**each) for each in found["take_overs"]] if found["log"] == log else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_places(
    storage: Storage, log: str, places: Sequence[SegmentPlace], take_overs: Sequence[TakeOver] = ()
) -> None:
    """Replace the file. Raises OSError."""
    rows = [{**each._asdict(), "chain": each.chain.hex()} for each in places]
    content = {"log": log, "segments": rows, "take_overs": [each._asdict() for each in take_overs]}
    temporary = NAME + ".tmp"
    storage.create(temporary)
    storage.write(temporary, 0, json.dumps(content).encode())
    storage.sync(temporary)
    storage.replace(temporary, NAME)
    storage.finish(NAME)


class PlaceNotes:
    """The file of the log of one name. It is written when something new is to be noted."""

    def __init__(self, storage: Storage, log: str) -> None:
        self._storage = storage
        self._log = log
        self._written: tuple[SegmentPlace, TakeOver | None] | None = None

    def segments(self) -> list[SegmentPlace]:
        """See `read_places`."""
        return read_places(self._storage, self._log)

    def take_overs(self) -> list[TakeOver]:
        """See `read_take_overs`."""
        return read_take_overs(self._storage, self._log)

    def write(self, places: Sequence[SegmentPlace], take_overs: Sequence[TakeOver]) -> None:
        """Replace the file if there is a newer segment or take-over. Raises OSError."""
        if not places:
            return
        newest = places[-1], take_overs[-1] if take_overs else None
        if newest != self._written:
            write_places(self._storage, self._log, places, take_overs)
            self._written = newest
