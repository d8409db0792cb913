"""The names of branches that people read and write.

Every xid has the name FORMAT:GTRID:BQUAL, the last two in hexadecimal. Those of Spark and Narayana have a readable name
as well. The name in PostgreSQL's `pg_prepared_xacts` is only read.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final

from escrowmq.core.branches.xid import Xid
from escrowmq.xid_names import narayana, spark

_BASE64: Final = "((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"
_POSTGRESQL: Final = re.compile(f"(-?[0-9]{{1,10}})_{_BASE64}_{_BASE64}")
"""How PostgreSQL's JDBC driver and psycopg name a prepared transaction. JDBC's format ids are signed."""
_SIGN: Final = 1 << 32


def shown(xid: Xid) -> str:
    """Return the readable name of a branch, or else its xid."""
    return spark.shown(xid) or narayana.shown(xid) or str(xid)


def parsed(name: str) -> Xid:
    """Return the xid with a name that `shown` returns, or that any `Xid` or PostgreSQL has. Raises INVALID_ARGUMENT."""
    found = _POSTGRESQL.fullmatch(name)
    if found is not None:
        number = int(found[1])
        return Xid(number + _SIGN * (number < 0), b64decode(found[2]), b64decode(found[3])).check()
    known = spark.parsed(name) or narayana.parsed(name)
    return Xid.parse(name) if known is None else known.check()


def in_postgresql(xid: Xid) -> str:
    """Return the beginning of the name that PostgreSQL has for each branch of the same global transaction."""
    number = xid.format_id - _SIGN * (xid.format_id >= _SIGN // 2)
    return f"{number}_{b64encode(xid.gtrid).decode()}_"


def details(xid: Xid) -> list[tuple[str, str]]:
    """Return the facts that an xid of a known program says, as names and texts; none for other xids."""
    return spark.details(xid) or narayana.details(xid)


def quoted(part: bytes) -> str:
    """Return a part of an xid in quotes if it is text that can be printed, else in hexadecimal after `0x`."""
    text = text_of(part)
    return f"0x{part.hex()}" if text is None else f"'{text}'"


def text_of(part: bytes) -> str | None:
    """Return a part of an xid if it is UTF-8 that can be printed, else None."""
    try:
        text = part.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
