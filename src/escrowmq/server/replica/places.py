"""The file `replica.state`: where segments of the journal begin in the replicated log, a hint for the next start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from escrowmq.journal.storage import Storage
from escrowmq.replica.tail import SegmentPlace

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


def write_places(storage: Storage, log: str, places: Sequence[SegmentPlace]) -> None:
    """Replace the file. Raises OSError."""
    rows = [{**each._asdict(), "chain": each.chain.hex()} for each in places]
    temporary = NAME + ".tmp"
    storage.create(temporary)
    storage.write(temporary, 0, json.dumps({"log": log, "segments": rows}).encode())
    storage.sync(temporary)
    storage.replace(temporary, NAME)
    storage.finish(NAME)
