"""Compare each frame of the log with its digest, which the next frame repeats (`journal.digests`).

A frame whose record was changed differs from its digest even if its checksum and the chain of segments were made right
again. The last frame has no later one, and frames of older versions have no digests; these cannot be compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from escrowmq.core.records.kinds import Kind
from escrowmq.journal.digests import FrameDigest, last_of
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.format import DIGESTED_VERSION, FRAME_HEADER_SIZE
from escrowmq.journal.frames import Frame, JournalFile
from escrowmq.journal.reader import JournalReader
from escrowmq.pipeline.affected import Affected, affected
from escrowmq.pipeline.findings import BranchRule
from escrowmq.pipeline.sequences import Wrong

LISTED: Final = 5
"""The most records that the text of a violation names."""


class Compared(NamedTuple):
    """How many frames were compared with their digests.

    Args:
        frames: compared ones.
        without: those that no later frame has a digest of, apart from the last frame of the log.
        last: the LSN of the last frame, which has no later one; -1 if there is none.
    """

    frames: int = 0
    without: int = 0
    last: int = -1


class Comparison:
    """Compares the frames of one segment, and the last one before it."""

    def __init__(self, file: JournalFile, before: Callable[[], Frame | None]) -> None:
        """`before` returns the frame that ends where the segment begins, if it exists."""
        self._digested = file.header.version >= DIGESTED_VERSION
        self._before = before
        self._past: Frame | None = None
        self._different: list[dict[str, Any]] = []
        self._compared = 0
        self._frames = 0
        self._continues = False

    def add(self, frame: Frame) -> None:
        """Compare the frame before `frame` with the digest in it."""
        past, first, self._past = self._past, self._past is None, frame
        self._frames += 1
        if not self._digested:
            return
        said = last_of(frame)
        if first and said is not None:
            past = self._before()
            self._continues = past is not None
        if past is None or (first and said is None):
            return  # there is nothing before, or it was deleted, or the broker could not read it when it started
        self._compared += 1
        if said is None or said.lsn != past.lsn:
            self._note(past.lsn, frame, "no digest of the frame before", [])
            return
        changed = said.changes(past)
        if changed is not None:
            self._note(past.lsn, frame, "", _records(past, said, changed))

    def _note(self, lsn: int, frame: Frame, fault: str, records: list[Affected]) -> None:
        self._different.append({"frame": lsn, "said": frame.lsn, "fault": fault, "records": records})

    def row(self) -> dict[str, Any]:
        """Return the columns of the segment: differences as JSON, and how many frames were compared."""
        return {
            "different": json.dumps(self._different),
            "compared": self._compared,
            "frames": self._frames,
            "continues": self._continues,
            "last": -1 if self._past is None else self._past.lsn,
        }


def _records(frame: Frame, said: FrameDigest, ranges: list[tuple[int, int]]) -> list[Affected]:
    """Return the records in `ranges` of the payload, with their messages."""
    begin = frame.payload_lsn
    found = []
    for lsn, kind, payload in frame.records():
        at = lsn - begin
        places = [(max(a, at) - at, min(b, at + len(payload)) - at) for a, b in ranges]
        places = [(a, b) for a, b in places if a < b]
        if places and kind != Kind.DIGEST:
            found.append(affected(kind, lsn, bytes(payload), places))
    return found


def before(reader: JournalReader, file: JournalFile) -> Frame | None:
    """Return the frame that ends where `file` begins, or None if there is none, or it cannot be read."""
    earlier = [name for start, name in reader.segment_starts() if start < file.origin]
    if not earlier:
        return None
    try:
        found = reader.file(earlier[-1])
        walk = found.walk(None if found.footer is None else found.granule(file.origin - 1)[0], file.origin)
        for _ in walk:
            pass
    except (FileNotFoundError, JournalDamaged):
        return None
    return walk.last if walk.lsn == file.origin else None


def judge(rows: Iterable[dict[str, Any]], names: Mapping[int, str]) -> tuple[list[Wrong], Compared]:
    """Return the violations in segments, and what was compared.

    Args:
        rows: a row of each segment, as for `chain.judge`.
        names: the names of queues, by ID.
    """
    found = sorted(rows, key=lambda row: row["first"])
    wrong = [_wrong(each, names) for row in found for each in json.loads(row["different"])]
    compared = sum(row["compared"] for row in found)
    # A segment's frames are compared with digests, except its last one, unless the next segment has its digest.
    inner = sum(max(0, row["compared"] - row["continues"]) for row in found)
    closed = sum(row["continues"] for row in found[1:])
    frames = sum(row["frames"] for row in found)
    last = found[-1]["last"] if found else -1
    return wrong, Compared(compared, max(0, frames - inner - closed - (last >= 0)), last)


def _wrong(each: Mapping[str, Any], names: Mapping[int, str]) -> Wrong:
    lsn, said, records = each["frame"], each["said"], [Affected(*record) for record in each["records"]]
    if each["fault"]:
        return Wrong(BranchRule.DIGEST, said, f": the frame at LSN {said:#x} has {each['fault']} at LSN {lsn:#x}")
    text = f": the frame at LSN {lsn:#x} differs from its digest in the frame at LSN {said:#x}"
    if records:
        what = "; ".join(record.text(names) for record in records[:LISTED])
        more = f"; and {len(records) - LISTED} more records" if len(records) > LISTED else ""
        text += f". The change is in {what}{more}"
        lsn = records[0].lsn
    return Wrong(BranchRule.DIGEST, lsn, text, (said + FRAME_HEADER_SIZE,))
