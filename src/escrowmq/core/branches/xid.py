"""The name of a transaction branch, as X/Open XA has it (DTX-13)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition

_HEAD: Final = struct.Struct(">IBB")  # format id, lengths of gtrid and bqual
MAX_PART: Final = 64
"""Maximum length in bytes of a global transaction id, and of a branch qualifier."""
MAX_FORMAT: Final = (1 << 32) - 1


class Xid(NamedTuple):
    """An xid. Two xids are equal only if format id, global transaction id and branch qualifier are equal (DTX-13)."""

    format_id: int
    gtrid: bytes
    bqual: bytes

    def encode(self) -> bytes:
        """Encode the xid as in the longstr of the dtx classes. The journal uses the same encoding. Raises
        INVALID_ARGUMENT if a part is out of range.
        """
        self.check()
        return _HEAD.pack(self.format_id, len(self.gtrid), len(self.bqual)) + self.gtrid + self.bqual

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Xid:
        """Decode the result of `encode`. Raises INVALID_ARGUMENT for any other bytes."""
        if len(data) < _HEAD.size:
            raise _malformed(f"it has {len(data)} bytes, at least {_HEAD.size} are needed")
        format_id, gtrid, bqual = _HEAD.unpack_from(data)
        if gtrid > MAX_PART or bqual > MAX_PART:
            raise _malformed(f"its parts have {gtrid} and {bqual} bytes, at most {MAX_PART} are allowed")
        if len(data) != _HEAD.size + gtrid + bqual:
            raise _malformed(f"it has {len(data)} bytes, its lengths make {_HEAD.size + gtrid + bqual}")
        end = _HEAD.size + gtrid
        return cls(format_id, bytes(data[_HEAD.size : end]), bytes(data[end:]))

    @classmethod
    def parse(cls, text: str) -> Xid:
        """Parse the text form that `str` returns. Raises INVALID_ARGUMENT."""
        try:
            format_id, gtrid, bqual = text.split(":")
            xid = cls(int(format_id), bytes.fromhex(gtrid), bytes.fromhex(bqual))
        except ValueError:
            raise _malformed(f"'{text}' is not <format id>:<gtrid in hex>:<bqual in hex>") from None
        return xid.check()

    def check(self) -> Xid:
        """Return the xid itself. Raises INVALID_ARGUMENT if a part is out of range."""
        if not 0 <= self.format_id <= MAX_FORMAT:
            raise _malformed(f"its format id {self.format_id} is not in 0 to {MAX_FORMAT}")
        if len(self.gtrid) > MAX_PART or len(self.bqual) > MAX_PART:
            raise _malformed(f"its parts have {len(self.gtrid)} and {len(self.bqual)} bytes, at most {MAX_PART} each")
        return self

    def __str__(self) -> str:
        return f"{self.format_id}:{self.gtrid.hex()}:{self.bqual.hex()}"


def _malformed(why: str) -> BrokerError:
    return BrokerError(Condition.INVALID_ARGUMENT, f"xid is malformed: {why}")
