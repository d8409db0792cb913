"""Transaction ids as PEP 249 describes them, also made from the xids of other drivers."""

from __future__ import annotations

from collections.abc import Sequence

from escrowmq.client.errors import ProgrammingError
from escrowmq.core.branches.xid import MAX_FORMAT, MAX_PART, Xid
from escrowmq.core.conditions import BrokerError


def make_xid(format_id: int, gtrid: str | bytes, bqual: str | bytes) -> Xid:
    """Make an xid. Text is encoded as UTF-8.

    Raises:
        ProgrammingError: `format_id` is not 0 to 2**32 - 1, a part exceeds 64 bytes, or `gtrid` is empty.
    """
    return _made(format_id, gtrid, bqual)


def as_xid(given: object) -> Xid:
    """Convert to an xid: one of this client, one of another driver, a tuple of three, or an xid's text.

    Another driver's xid has the attributes `format_id`, `gtrid` and `bqual`.

    Raises:
        ProgrammingError: `given` is none of these, or as for `make_xid`.
    """
    if isinstance(given, Xid):
        return given
    if isinstance(given, str):
        try:
            return Xid.parse(given)
        except (BrokerError, ValueError) as error:
            raise ProgrammingError(f"not an xid: {given!r} ({error})") from None
    if isinstance(given, Sequence) and len(given) == 3:
        return _made(*given)
    return _made(*(getattr(given, name, None) for name in ("format_id", "gtrid", "bqual")))


def _made(format_id: object, gtrid: object, bqual: object) -> Xid:
    if not isinstance(format_id, int) or not 0 <= format_id <= MAX_FORMAT:
        raise ProgrammingError(f"an xid's format id must be a number from 0 to {MAX_FORMAT}, not {format_id!r}")
    xid = Xid(format_id, _part("gtrid", gtrid), _part("bqual", bqual))
    if not xid.gtrid:
        raise ProgrammingError("an xid's gtrid must not be empty")
    return xid


def _part(name: str, value: object) -> bytes:
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ProgrammingError(f"an xid's {name} must be text or bytes, not {type(value).__name__}")
    data = bytes(value)
    if len(data) > MAX_PART:
        raise ProgrammingError(f"an xid's {name} has at most {MAX_PART} bytes, but this one has {len(data)}")
    return data
