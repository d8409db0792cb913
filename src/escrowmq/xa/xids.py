"""How global transactions and branches are named, so that recovery knows what is its own.

A global transaction id is `MANAGER.LOG.RANDOM`: the manager's name, an identity that the decision log got when it was
made, and 64 random bits. So a manager with a new or another log never decides about branches of the old one: to it they
are foreign. A branch qualifier is `PARTICIPANT.NUMBER`.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final, NamedTuple

FORMAT_ID: Final = 0x45534D51
"""Of every xid that this manager makes; ASCII `ESMQ`."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
LONGEST_MANAGER: Final = 32
LONGEST_PARTICIPANT: Final = 48


class BranchId(NamedTuple):
    """The two parts of one of our xids, as text."""

    gtrid: str
    bqual: str

    @property
    def participant(self) -> str:
        """Whose branch it is."""
        return self.bqual.rpartition(".")[0]


def check_name(what: str, name: str, longest: int) -> str:
    """`name` if it can be part of an xid; ValueError otherwise."""
    if not _NAME.fullmatch(name) or len(name) > longest:
        raise ValueError(f"a {what}'s name has 1 to {longest} letters, digits, - and _, not {name!r}")
    return name


def new_identity() -> str:
    """Of a decision log."""
    return secrets.token_hex(6)


def new_gtrid(manager: str, identity: str) -> str:
    """At most 62 characters of ASCII; X/Open allows 64 bytes."""
    return f"{manager}.{identity}.{secrets.token_hex(8)}"


def parse(xid: Any) -> BranchId | None:
    """Of an xid of any driver (a sequence of three, text or bytes); None if no manager of this kind made it."""
    if xid[0] != FORMAT_ID:
        return None
    return BranchId(_text(xid[1]), _text(xid[2]))


def is_of(gtrid: str, manager: str, identity: str) -> bool:
    """Whether the manager with this log has made it."""
    return gtrid.startswith(f"{manager}.{identity}.")


def is_of_namesake(gtrid: str, manager: str, identity: str) -> bool:
    """Whether a manager of the same name, but with another log, has made it."""
    return gtrid.startswith(f"{manager}.") and not is_of(gtrid, manager, identity)


def _text(part: Any) -> str:
    return bytes(part).decode("latin-1") if isinstance(part, bytes | bytearray | memoryview) else str(part)
