"""Names of Narayana's branches: `narayana:NODE@TRANSACTION,BRANCH`, the last two as Narayana's log writes them.

A number of the participant that is not 0 and the name of a subordinate node follow, each after a comma.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

from escrowmq.core.branches.xid import Xid

PREFIX: Final = "narayana:"
_FORMAT: Final = 131077  # JTA
_UID: Final = struct.Struct(">qqiii")  # two halves of the address, process, seconds, number
_TAIL: Final = struct.Struct(">ii")  # number of the participant, length of the subordinate node's name
_NODE: Final = re.compile(r"[^\s@,/]*")
_NUMBER: Final = "-?[0-9a-f]{1,16}"
_NAME: Final = re.compile(
    rf"([^\s@,/]*)@({_NUMBER}(?::{_NUMBER}){{4}}),({_NUMBER}(?::{_NUMBER}){{4}})(?:,(-?[0-9]{{1,10}})(?:,([^\s@,/]+))?)?"
)


class NarayanaXid(NamedTuple):
    """The fields of an xid of Narayana. `padding` is the number of zeros at its end, which old versions write."""

    node: str
    transaction: str
    branch: str
    participant: int
    subordinate: str
    padding: int

    def encode(self) -> Xid | None:
        """Return the xid without padding, or None if a number is out of range. Parts may be too long."""
        subordinate = self.subordinate.encode(errors="surrogatepass")
        try:
            transaction, branch = (
                _UID.pack(*(int(number, 16) for number in uid.split(":"))) for uid in (self.transaction, self.branch)
            )
            tail = _TAIL.pack(self.participant, len(subordinate))
        except struct.error:
            return None
        return Xid(_FORMAT, transaction + self.node.encode(errors="surrogatepass"), branch + tail + subordinate)


def shown(xid: Xid) -> str | None:
    """Return the name of a branch of Narayana's, None for any other."""
    found = _fields(xid)
    if found is None or found.padding:
        return None
    tail = f",{found.participant}" if found.participant or found.subordinate else ""
    tail += f",{found.subordinate}" if found.subordinate else ""
    return f"{PREFIX}{found.node}@{found.transaction},{found.branch}{tail}"


def parsed(name: str) -> Xid | None:
    """Return the xid with the name that `shown` returns, None for any other text."""
    found = _NAME.fullmatch(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    if found is None:
        return None
    node, transaction, branch, participant, subordinate = found.groups()
    return NarayanaXid(node, transaction, branch, int(participant or 0), subordinate or "", 0).encode()


def details(xid: Xid) -> list[tuple[str, str]]:
    """Return the fields of a branch of Narayana's, as names and texts; nothing for any other branch."""
    found = _fields(xid)
    if found is None:
        return []
    rows = [("node", found.node), ("transaction", found.transaction), ("branch", found.branch)]
    if found.participant:
        rows.append(("participant", str(found.participant)))
    if found.subordinate:
        rows.append(("subordinate", found.subordinate))
    return rows


def _fields(xid: Xid) -> NarayanaXid | None:
    if xid.format_id != _FORMAT or len(xid.gtrid) < _UID.size or len(xid.bqual) < _UID.size + _TAIL.size:
        return None
    participant, length = _TAIL.unpack_from(xid.bqual, _UID.size)
    rest = xid.bqual[_UID.size + _TAIL.size :]
    if length < 0 or length > len(rest) or any(rest[length:]):
        return None
    try:
        node, subordinate = xid.gtrid[_UID.size :].decode(), rest[:length].decode()
    except UnicodeDecodeError:
        return None
    if not all(text.isprintable() and _NODE.fullmatch(text) for text in (node, subordinate)):
        return None
    uids = [":".join(f"{number:x}" for number in _UID.unpack_from(part)) for part in (xid.gtrid, xid.bqual)]
    return NarayanaXid(node, uids[0], uids[1], participant, subordinate, len(rest) - length)
