"""Prove that the log continues the one that the last audit read, and that no record in it was changed since.

The header of each segment has the beginning of the digest of the segment before, and the footer has the segment's own.
So the digest at the end of the log stands for all of it. An audit keeps this digest, the *head*, and the next one
computes it again from the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

from escrowmq.journal.format import CHAINED_VERSION, LINK_SIZE, OF_CONTENTS
from escrowmq.journal.frames import Frame, JournalFile
from escrowmq.pipeline.digests import Comparison
from escrowmq.pipeline.findings import BranchRule
from escrowmq.pipeline.sequences import Wrong

SCHEMA: Final = pa.schema(
    [
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("version", pa.int32()),
        ("link", pa.binary()),
        ("stored", pa.binary()),
        ("computed", pa.binary()),
        ("headers", pa.binary()),
        ("past", pa.binary()),
        ("different", pa.string()),
        ("compared", pa.int64()),
        ("frames", pa.int64()),
        ("continues", pa.bool_()),
        ("last", pa.int64()),
    ]
)
DDL: Final = (
    "first long, end long, version int, link binary, stored binary, computed binary, headers binary, past binary, "
    "different string, compared long, frames long, continues boolean, last long"
)
"""A row is a segment: where it begins and ends, the link in its header, the digest in its footer (empty if there is
none), the same digest as its frames give it, the digest of the headers of its frames, and that of the headers up to the
LSN at which the last audit ended (empty if that is not in the segment). The other columns are those of
`digests.Comparison`.
"""


class Head(NamedTuple):
    """What an audit saw at the end of the log.

    Args:
        lsn: where the log ended.
        digest: the digest of the last segment's header and the headers of its frames, in hexadecimal.
        link: the link that the next segment must have, in hexadecimal; empty if that is not known.
    """

    lsn: int
    digest: str
    link: str

    def __str__(self) -> str:
        return f"LSN {self.lsn:#x}, SHA-256 {self.digest}"


def examined(
    file: JournalFile, end: int, past: int, before: Callable[[], Frame | None] = lambda: None
) -> dict[str, Any]:
    """Return the row of a segment.

    Args:
        file: the segment.
        end: the LSN up to which it is read.
        past: the LSN at which the last audit ended.
        before: returns the frame that ends where the segment begins, if it exists.
    """
    footer = file.footer
    if footer is not None and footer.end_lsn != end:
        footer = None  # the broker has sealed the segment since the run was planned
    headers = hashlib.sha256(file.header.pack())
    contents = headers.copy() if footer is not None and footer.chained == OF_CONTENTS else None
    seen = headers.digest() if past == file.origin else b""
    comparison = Comparison(file, before)
    walk = file.walk(end=end, check=False)
    for frame in walk:
        comparison.add(frame)
        headers.update(frame.head)
        if contents is not None:
            contents.update(frame.head)
            contents.update(frame.body)
        if frame.end_lsn == past:
            seen = headers.digest()
    if walk.lsn != end:
        footer = None  # the damage is reported elsewhere
    return {
        "first": file.origin,
        "end": walk.lsn,
        "version": file.header.version,
        "link": file.header.link,
        "stored": footer.chain if footer is not None else b"",
        "computed": (contents or headers).digest(),
        "headers": headers.digest(),
        "past": seen,
        **comparison.row(),
    }


def judge(
    rows: Iterable[dict[str, Any]], before: Head | None, holes: Collection[tuple[int, int]] = ()
) -> tuple[list[Wrong], Head | None, bool]:
    """Check the segments that an audit has read.

    Args:
        rows: a row for each segment, and for the one in which the last audit ended, if it exists.
        before: the head that the last audit saw; None if there was none.
        holes: missing parts of the log about which another rule decides (`pipeline.removals`).

    Returns the violations, the new head, and whether everything was proved: older versions have no chain, and segments
    may have been deleted. Without a head of an earlier audit, only the chain within the log can be proved.
    """
    found = sorted(rows, key=lambda row: row["first"])
    wrong = [
        Wrong(
            BranchRule.CHAIN, row["first"], f": the segment at LSN {row['first']:#x} has another digest than its footer"
        )
        for row in found
        if row["stored"] and row["stored"] != row["computed"]
    ]
    proved = all(row["version"] >= CHAINED_VERSION for row in found)
    for past, row in pairwise(found):
        if (past["end"], row["first"]) in holes:
            continue
        if past["end"] != row["first"] or min(past["version"], row["version"]) < CHAINED_VERSION:
            proved = False
        elif row["link"] not in (past["computed"][:LINK_SIZE], past["headers"][:LINK_SIZE]):
            text = f": the segment at LSN {row['first']:#x} does not continue the one before it"
            wrong.append(Wrong(BranchRule.CHAIN, row["first"], text))
    if before is not None and found:
        continues = _continues(found, before)
        proved &= continues is not None
        if continues is False:
            wrong.append(Wrong(BranchRule.CHAIN, before.lsn, f": it differs from what the last audit saw, {before}"))
    return wrong, _head(found) or before, proved


def _continues(found: Sequence[dict[str, Any]], before: Head) -> bool | None:
    """Return whether the log continues from the head; None if that cannot be said."""
    for row in found:
        if row["first"] <= before.lsn <= row["end"] and row["past"]:
            if row["past"].hex() == before.digest:
                return True
            if row["first"] < before.lsn:
                return False
            return row["link"].hex() == before.link if before.link and row["version"] >= CHAINED_VERSION else None
        if row["first"] < before.lsn <= row["end"]:
            return False  # no frame ends there any more
    return None


def _head(found: Sequence[dict[str, Any]]) -> Head | None:
    if not found:
        return None
    last = found[-1]
    return Head(last["end"], last["headers"].hex(), last["stored"][:LINK_SIZE].hex())
