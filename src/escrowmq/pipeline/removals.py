"""Check that the journal itself has deleted the parts of the log that are missing, by its own record (REMOVED).

Journals of older versions have no such records, so nothing can be said about what is missing in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from escrowmq.journal.removals import UNKNOWN, Hole, Range, decode, unexplained, within
from escrowmq.pipeline.findings import BranchRule
from escrowmq.pipeline.sequences import Wrong


class MissingParts(NamedTuple):
    """What is missing in a log.

    Args:
        holes: ranges of addresses that no segment holds.
        links: the links in the headers of the segments behind the holes, by the LSN at which these begin.
        noted: whether the journal notes what it deletes. Older versions did not.
    """

    holes: Sequence[Range]
    links: Mapping[int, bytes]
    noted: bool


NOTHING_MISSING: Final = MissingParts((), {}, noted=False)


def noted_holes(payload: bytes) -> list[Hole]:
    """Return the holes in a record; none if the record is damaged, so that it explains nothing."""
    try:
        return decode(payload)
    except ValueError:
        return []


def judge(
    missing: MissingParts, said: Sequence[Hole], seen: Sequence[Range] | None = None
) -> tuple[list[Wrong], bool | None]:
    """Compare what is missing with what the journal has noted.

    Args:
        missing: what is missing.
        said: the holes in the newest record.
        seen: the ranges that the last run missed already, if a broker is running. It may have noted the others in
            records that this run does not read yet, so they are left to the next run.

    Returns the violations, and whether all that is missing was deleted by the journal; None if nothing is missing.
    """
    if not missing.holes:
        return [], None
    if not missing.noted:
        return [], False
    wrong, proved = [], True
    for begin, end in unexplained(missing.holes, said):
        known = [(begin, end)] if seen is None else [hole[:2] for hole in within([Hole(begin, end)], seen)]
        proved = False
        wrong += [Wrong(BranchRule.REMOVED, first, f": LSN {first:#x} to {stop:#x}") for first, stop in known]
    for hole in said:
        link = missing.links.get(hole.end_lsn, UNKNOWN)
        if UNKNOWN in (hole.link, link):
            proved &= hole.end_lsn not in missing.links
        elif hole.link != link:
            text = f": the segment at LSN {hole.end_lsn:#x} does not continue the one that the journal has deleted"
            wrong.append(Wrong(BranchRule.CHAIN, hole.end_lsn, text))
    return wrong, proved
