"""The audit compares what is missing of a log with what the journal has noted as deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.journal.removals import UNKNOWN, Hole, encode
from escrowmq.pipeline.planning import plan
from escrowmq.pipeline.removals import NOTHING_MISSING, MissingParts, judge, noted_holes
from tests.pipeline.direct import audited, head_of, removed
from tests.pipeline.mutations.sources import compacted

LINK, OTHER = b"0123456789ab", b"ba9876543210"
MISSING = MissingParts([(0, 16), (32, 64)], {16: LINK, 64: OTHER}, noted=True)
NOTED = [Hole(0, 16, LINK), Hole(32, 64, OTHER)]


def wrong(missing: MissingParts, said: list[Hole], seen: list[tuple[int, int]] | None = None) -> list[tuple[str, int]]:
    return [(each.rule.name, each.lsn) for each in judge(missing, said, seen)[0]]


def test_noted_deletions_are_proved() -> None:
    assert judge(MISSING, NOTED) == ([], True)
    assert judge(MISSING, [*NOTED, Hole(80, 96, LINK)]) == ([], True)  # noted, and not deleted yet
    assert judge(NOTHING_MISSING, NOTED) == ([], None)


def test_each_part_without_a_note_is_a_violation() -> None:
    assert wrong(MISSING, []) == [("segment removed", 0), ("segment removed", 32)]
    assert wrong(MISSING, [Hole(0, 16, LINK), Hole(40, 48)]) == [("segment removed", 32), ("segment removed", 48)]
    assert judge(MISSING, [Hole(0, 16, LINK)])[0][0].text == ": LSN 0x20 to 0x40"


def test_the_next_segment_must_continue_the_deleted_one() -> None:
    assert wrong(MISSING, [Hole(0, 16, OTHER), NOTED[1]]) == [("log changed", 16)]


def test_a_hole_without_a_link_is_explained_but_not_proved() -> None:
    assert judge(MISSING, [Hole(0, 16, UNKNOWN), NOTED[1]]) == ([], False)


def test_older_versions_noted_nothing() -> None:
    assert judge(MISSING._replace(noted=False), []) == ([], False)


def test_while_a_broker_runs_only_what_was_missed_before_is_a_violation() -> None:
    assert judge(MISSING, [], []) == ([], False)
    assert wrong(MISSING, [], [(32, 64)]) == [("segment removed", 32)]
    assert wrong(MISSING, [], [(8, 40)]) == [("segment removed", 8), ("segment removed", 32)]


def test_a_damaged_record_explains_nothing() -> None:
    assert noted_holes(encode(NOTED)) == NOTED
    assert noted_holes(encode(NOTED)[:-1]) == []


@pytest.mark.rule("PIPE-8")
def test_a_compacted_journal_is_proved_until_a_segment_is_removed(tmp_path: Path) -> None:
    compacted(tmp_path)
    assert len(plan(tmp_path).holes) > 1
    assert removed(tmp_path) == ([], True)
    assert head_of(tmp_path)[2]
    first, *_ = sorted(tmp_path.glob("*.log"))
    first.unlink()
    ((rule, _, text, _),), proved = removed(tmp_path)
    assert (rule.rule, rule.name) == ("PIPE-8", "segment removed")
    assert text.startswith(f": LSN {int(first.stem, 16):#x} to ")
    assert not proved
    assert "segment removed" in [name for name, _, _ in audited(tmp_path).wrong]


def test_a_segment_that_cannot_be_read_is_damage_and_not_removed(tmp_path: Path) -> None:
    compacted(tmp_path)
    first, *_ = sorted(tmp_path.glob("*.log"))
    first.write_bytes(b"?" + first.read_bytes()[1:])
    assert [each.file for each in plan(tmp_path).damage] == [first.name]
    assert [each.rule.name for each in removed(tmp_path)[0]] == []
