"""The naming of global transactions and branches, by which recovery recognises its own.

A global transaction id is `MANAGER.LOG.RANDOM`: the manager's name, the identity that the decision log got when it was
created, and 64 random bits. A manager with a new or different log therefore never decides about branches of the old
one: it treats them as foreign. A branch qualifier is `PARTICIPANT.NUMBER`.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final, NamedTuple

FORMAT_ID: Final = 0x45534D51
"""The format id of all xids of this manager: `ESMQ` in ASCII."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
LONGEST_MANAGER: Final = 32
LONGEST_PARTICIPANT: Final = 48


class BranchId(NamedTuple):
    """The two parts of an xid of this manager, as text."""

    gtrid: str
    bqual: str

    @property
    def participant(self) -> str:
        """The participant's name."""
        return self.bqual.rpartition(".")[0]


def check_name(what: str, name: str, longest: int) -> str:
    """Return `name` if it can be part of an xid. Raises ValueError otherwise."""
    if not _NAME.fullmatch(name) or len(name) > longest:
        raise ValueError(f"a {what}'s name must be 1 to {longest} letters, digits, - or _, not {name!r}")
    return name


def new_identity() -> str:
    """Return a random identity for a decision log."""
    return secrets.token_hex(6)


def new_gtrid(manager: str, identity: str) -> str:
    """Return a new global transaction id: at most 62 ASCII characters, where X/Open allows 64 bytes."""
    return f"{manager}.{identity}.{secrets.token_hex(8)}"


def parse(xid: Any) -> BranchId | None:
    """Return the parts of any driver's xid (a sequence of three, text or bytes).

    Returns None if the xid has another format id.
    """
    if xid[0] != FORMAT_ID:
        return None
    return BranchId(_text(xid[1]), _text(xid[2]))


def is_of(gtrid: str, manager: str, identity: str) -> bool:
    """Return whether the manager with this log made the id."""
    return gtrid.startswith(f"{manager}.{identity}.")


def is_of_namesake(gtrid: str, manager: str, identity: str) -> bool:
    """Return whether a manager of the same name but with another log made the id."""
    return gtrid.startswith(f"{manager}.") and not is_of(gtrid, manager, identity)


def _text(part: Any) -> str:
    return bytes(part).decode("latin-1") if isinstance(part, bytes | bytearray | memoryview) else str(part)
