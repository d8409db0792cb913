"""Names of Spark's branches that a person can read: `spark:APPLICATION#EPOCH:PARTITION.RUN.ATTEMPT.NUMBER`."""

from __future__ import annotations

import re
from typing import Final

from escrowmq.core.branches.xid import Xid

PREFIX: Final = "spark:"
_FORMAT: Final = 0x45535051  # that of escrowmq.spark
_GTRID: Final = re.compile(r"(.+)#(\d+)")
_TASK: Final = re.compile(r"(\d+)\.[0-9a-f]{16}\.\d+\.\d+")
_SETTLE: Final = re.compile(r"settle[0-9a-f]*")


def shown(xid: Xid) -> str | None:
    """Return the name of a branch of Spark's, None for any other."""
    parts = _parts(xid)
    return None if parts is None else f"{PREFIX}{parts[0]}:{parts[1]}"


def parsed(name: str) -> Xid | None:
    """Return the xid with the name that `shown` returns, None for any other text. Parts may be too long."""
    if not name.startswith(PREFIX):
        return None
    gtrid, _, bqual = name.removeprefix(PREFIX).rpartition(":")
    return Xid(_FORMAT, gtrid.encode(errors="surrogatepass"), bqual.encode(errors="surrogatepass"))


def details(xid: Xid) -> list[tuple[str, str]]:
    """Return the facts that the name of a branch of Spark's says, as names and texts; nothing for any other branch."""
    parts = _parts(xid)
    if parts is None:
        return []
    epoch, task = _GTRID.fullmatch(parts[0]), _TASK.fullmatch(parts[1])
    assert epoch is not None
    work = f"partition {task[1]} writes" if task is not None else "the sources settle what they have read"
    return [("application", epoch[1]), ("epoch", epoch[2]), ("work", work)]


def _parts(xid: Xid) -> tuple[str, str] | None:
    if xid.format_id != _FORMAT:
        return None
    try:
        gtrid, bqual = xid.gtrid.decode(), xid.bqual.decode()
    except UnicodeDecodeError:
        return None
    known = _GTRID.fullmatch(gtrid) and (_TASK.fullmatch(bqual) or _SETTLE.fullmatch(bqual))
    return (gtrid, bqual) if known and gtrid.isprintable() else None
