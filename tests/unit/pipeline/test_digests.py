"""The audit compares each frame with its digest, names what was changed with both places, and says what is unproved."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from escrowmq.core.records.kinds import Kind
from escrowmq.journal.format import segment_name
from escrowmq.pipeline.digests import Compared
from tests.pipeline.direct import audited, compared
from tests.pipeline.journals import Scribe
from tests.pipeline.mutations.faults import Part, parts
from tests.pipeline.mutations.rewriting import Copy, read

KEPT = Path(__file__).parents[2] / "conformance" / "journals"


def written(folder: Path, *, segment_bytes: int = 1 << 20) -> tuple[Copy, list[Part]]:
    """Return a journal with three runs of messages on the queue `orders`, each in its own frame, and these runs."""
    with Scribe(folder, segment_bytes=segment_bytes) as scribe:
        scribe.queue(3, "orders")
        for first in (1, 5, 9):
            scribe.frame()
            scribe.publish(3, first, 4)
        scribe.frame()
        scribe.settle(3, range(1, 13))
    journal = read(folder)
    return journal, sorted(parts(journal, Kind.PUBLISH, random.Random(1), ()))


def altered(journal: Copy, *runs: Part) -> Copy:
    """Return the journal with another last body in some runs."""
    for run in runs:
        journal = run.put(journal, run.length - 1, b"Y")
    return journal


@pytest.mark.rule("PIPE-8")
@pytest.mark.parametrize("segment_bytes", [100, 1 << 20], ids=["many segments", "one segment"])
def test_an_altered_body_is_named_with_both_places(tmp_path: Path, segment_bytes: int) -> None:
    journal, (run, *_) = written(tmp_path, segment_bytes=segment_bytes)
    altered(journal, run).write(tmp_path)
    ((rule, lsn, text, others),), _ = compared(tmp_path, names={3: "orders"})
    frame, said = journal.frames[run.frame : run.frame + 2]
    assert (rule.rule, rule.name) == ("PIPE-8", "record changed")
    assert (lsn, others) == (frame.records[0].lsn, (said.lsn + 40,))
    assert text == (
        f": the frame at LSN {frame.lsn:#x} differs from its digest in the frame at LSN {said.lsn:#x}. "
        f"The change is in the PUBLISH record at LSN {lsn:#x} (messages: orders 1 to 4)"
    )
    assert "record changed" in [name for name, _, _ in audited(tmp_path).wrong]


def test_two_altered_frames_are_two_violations(tmp_path: Path) -> None:
    journal, (first, _, third) = written(tmp_path)
    altered(journal, first, third).write(tmp_path)
    wrong, _ = compared(tmp_path)
    assert [each.lsn for each in wrong] == [journal.frames[run.frame].records[0].lsn for run in (first, third)]


def test_a_frame_without_the_digest_of_the_one_before_is_a_violation(tmp_path: Path) -> None:
    journal, (_, second, _) = written(tmp_path)
    changed = journal.twin()
    assert changed.frames[second.frame].records.pop().kind == Kind.DIGEST
    changed.write(tmp_path)
    wrong, _ = compared(tmp_path)
    assert "has no digest of the frame before" in wrong[0].text


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20], ids=["many segments", "one segment"])
def test_all_frames_but_the_last_are_compared(tmp_path: Path, segment_bytes: int) -> None:
    journal, _ = written(tmp_path, segment_bytes=segment_bytes)
    assert compared(tmp_path) == ([], Compared(len(journal.frames) - 1, 0, journal.frames[-1].lsn))


def test_a_frame_before_a_deleted_segment_cannot_be_compared(tmp_path: Path) -> None:
    journal, _ = written(tmp_path, segment_bytes=100)
    deleted = tmp_path / segment_name(journal.frames[2].lsn)
    deleted.unlink()
    wrong, found = compared(tmp_path)
    assert wrong == []
    assert (found.frames, found.without) == (len(journal.frames) - 3, 1)


@pytest.mark.parametrize("folder", sorted(KEPT.iterdir()), ids=lambda folder: folder.name)
def test_frames_of_versions_without_digests_cannot_be_compared(folder: Path) -> None:
    frames = len(read(folder).frames)
    wrong, found = compared(folder)
    assert wrong == []
    digested = folder.name >= "version-5"
    assert (found.frames, found.without) == ((frames - 1, 0) if digested else (0, frames - 1))
