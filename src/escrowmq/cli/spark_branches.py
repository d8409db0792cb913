"""Names of Spark's branches that a person can read: `spark:APPLICATION#EPOCH:PARTITION.RUN.ATTEMPT.NUMBER`.

The names of all other branches are FORMAT:GTRID:BQUAL, the last two in hexadecimal.
"""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "spark:"
_FORMAT: Final = 0x45535051  # that of escrowmq.spark
_XID: Final = re.compile(rf"{_FORMAT}:([0-9a-f]+):([0-9a-f]*)")
_GTRID: Final = re.compile(r"(.+)#(\d+)")
_TASK: Final = re.compile(r"(\d+)\.[0-9a-f]{16}\.\d+\.\d+")
_SETTLE: Final = re.compile(r"settle[0-9a-f]*")


def shown(xid: str) -> str:
    """Return the readable name of a branch of Spark's, and any other xid as it is."""
    parts = _parts(xid)
    return xid if parts is None else f"{PREFIX}{parts[0]}:{parts[1]}"


def parsed(name: str) -> str:
    """Return the xid with the name that `shown` returns, and any other text as it is."""
    if not name.startswith(PREFIX):
        return name
    gtrid, _, bqual = name.removeprefix(PREFIX).rpartition(":")
    return f"{_FORMAT}:{gtrid.encode().hex()}:{bqual.encode().hex()}"


def described(xid: str) -> list[tuple[str, str]]:
    """Return what the name of a branch of Spark's says, as names and texts; nothing for any other branch."""
    parts = _parts(xid)
    if parts is None:
        return []
    epoch, task = _GTRID.fullmatch(parts[0]), _TASK.fullmatch(parts[1])
    assert epoch is not None
    work = f"partition {task[1]} writes" if task is not None else "the sources settle what they have read"
    return [("application", epoch[1]), ("epoch", epoch[2]), ("work", work)]


def _parts(xid: str) -> tuple[str, str] | None:
    found = _XID.fullmatch(xid)
    if found is None:
        return None
    try:
        gtrid, bqual = (bytes.fromhex(part).decode() for part in found.groups())
    except ValueError:
        return None
    known = _GTRID.fullmatch(gtrid) and (_TASK.fullmatch(bqual) or _SETTLE.fullmatch(bqual))
    return (gtrid, bqual) if known and gtrid.isprintable() else None
