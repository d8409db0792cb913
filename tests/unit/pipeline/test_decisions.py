"""A branch's outcome and violations follow from its steps; a commit may differ from the PREPARE in allowed ways."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.pipeline.decisions import HISTORY_GONE, BranchFacts, together
from escrowmq.pipeline.effects import difference


def step(name: str, lsn: int, *effects: str, snapshot: bool = False, whole: bool = True) -> dict[str, Any]:
    sizes = {"operations": 1, "published": 1, "settled": 0}
    rest = {"xid": None, "owner": None, "application": None, "epoch": None, "started_ms": None}
    row = {"step": name, "lsn": lsn, "at_us": lsn, "whole": whole, "snapshot": snapshot, "effects": list(effects)}
    return {**row, **sizes, **rest}


@pytest.mark.rule("HALF-3")
@pytest.mark.parametrize(
    ("steps", "outcome", "wrong"),
    [
        ([step("prepared", 1)], "prepared", None),
        ([step("prepared", 1), step("committed", 2)], "committed", None),
        ([step("prepared", 1), step("rolled back", 2), step("rolled back", 3)], "rolled back", "twice"),
        ([step("committed", 1), step("committed", 2)], "committed", "twice"),
        ([step("rolled back", 1), step("committed", 2)], "rolled back", "contradicted"),
        ([step("committed", 1, whole=False)], "committed", "torn"),
        ([step("prepared", 1), step("prepared", 2)], "prepared", "again"),
        ([step("prepared", 1), step("committed", 2), step("prepared", 3)], "committed", "again"),
        ([step("committed", 1), step("prepared", 2)], "committed", "again"),
        ([step("committed", 1, "place 1 2 64")], "committed", "unprepared"),
        ([step("rolled back", 1)], "rolled back", "unprepared"),
        ([step("forgotten", 1)], "prepared", "unprepared"),
        ([step("prepared", 1, snapshot=True)], "prepared", "unprepared"),
        ([step("prepared", 1), step("forgotten", 2)], "prepared", "forgotten"),
        ([step("prepared", 1), step("committed", 2), step("forgotten", 3)], "committed", "forgotten"),
        (
            [step("prepared", 1), step("heuristically rolled back", 2)],
            "heuristically rolled back",
            "the record that rolls it back contains 1 operations",
        ),
        (
            [
                step("prepared", 1),
                step("heuristically committed", 2),
                step("heuristically committed", 3, snapshot=True),
                step("forgotten", 4),
            ],
            "heuristically committed",
            None,
        ),
    ],
)
def test_steps_determine_outcome_and_violation(steps: list[dict[str, Any]], outcome: str, wrong: str | None) -> None:
    row = together(7, steps)
    assert (row["outcome"], row["wrong"]) == (outcome, wrong)
    assert row["records"] == [each["lsn"] for each in steps if not each["snapshot"]]


@pytest.mark.rule("DUR-1")
@pytest.mark.parametrize(
    ("steps", "start", "outcome", "wrong"),
    [
        ([step("prepared", 1)], 0, "prepared", "lost"),
        ([step("prepared", 1)], 5, "history gone", None),
        ([step("prepared", 1), step("rolled back", 20)], 5, "rolled back", None),
        ([step("prepared", 1), step("prepared", 10, snapshot=True)], 0, "prepared", None),
        ([step("prepared", 1), step("committed", 2), step("prepared", 10, snapshot=True)], 0, "committed", "back"),
        ([step("prepared", 1), step("prepared", 10, snapshot=True), step("committed", 12)], 0, "committed", None),
        ([step("prepared", 12)], 0, "prepared", None),
        ([step("prepared", 10, snapshot=True)], 5, "prepared", None),
        ([step("rolled back", 9)], 5, "rolled back", None),
        ([step("rolled back", 12)], 5, "rolled back", "unprepared"),
        ([step("prepared", 1), step("heuristically committed", 2)], 0, "heuristically committed", "lost"),
        (
            [step("prepared", 1), step("heuristically committed", 2), step("forgotten", 3)],
            0,
            "heuristically committed",
            None,
        ),
        ([step("prepared", 1), step("heuristically committed", 10, snapshot=True)], 0, "prepared", "changed"),
        (
            [step("prepared", 1, "settle 2 5 2"), step("prepared", 10, "settle 2 5 1", snapshot=True)],
            0,
            "prepared",
            "changed",
        ),
        (
            [step("prepared", 1, "place 1 2 64"), step("prepared", 10, "place 1 2 72", snapshot=True)],
            0,
            "prepared",
            "changed",
        ),
    ],
)
def test_a_snapshot_must_contain_the_branches_in_doubt(
    steps: list[dict[str, Any]], start: int, outcome: str, wrong: str | None
) -> None:
    row = together(7, steps, BranchFacts(snapshots=(10,), start=start))
    assert (row["outcome"], row["wrong"]) == (outcome, wrong)


FORCED = "heuristically committed"


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize(
    ("steps", "outcome", "wrong"),
    [
        ([step("prepared", 2), step("forgotten", 6)], HISTORY_GONE, None),
        ([step("prepared", 2), step("forgotten", 6), step("forgotten", 7)], HISTORY_GONE, "forgotten"),
        ([step("prepared", 2), step("prepared", 10, snapshot=True), step("forgotten", 12)], "prepared", "forgotten"),
        ([step("prepared", 2), step("forgotten", 4)], "prepared", "forgotten"),
        ([step("prepared", 6), step("forgotten", 7)], "prepared", "forgotten"),
        ([step("prepared", 2), step("rolled back", 3), step("forgotten", 6)], "rolled back", "forgotten"),
    ],
)
def test_an_operators_decision_may_be_in_a_deleted_part_of_the_log(
    steps: list[dict[str, Any]], outcome: str, wrong: str | None
) -> None:
    row = together(7, steps, BranchFacts(start=5))
    assert (row["outcome"], row["wrong"]) == (outcome, wrong)


@pytest.mark.rule("DUR-3")
@pytest.mark.parametrize(
    ("steps", "snapshots"),
    [
        ([step(FORCED, 10, snapshot=True), step(FORCED, 20, snapshot=True)], (10, 20)),
        ([step(FORCED, 8), step(FORCED, 10, snapshot=True), step(FORCED, 20, snapshot=True)], (10, 20)),
        ([step(FORCED, 10, snapshot=True), step("forgotten", 12)], (10,)),
        ([step(FORCED, 8), step(FORCED, 10, snapshot=True), step("forgotten", 12)], (10,)),
        ([step(FORCED, 10, snapshot=True), step(FORCED, 20, snapshot=True), step("forgotten", 22)], (20,)),
    ],
)
def test_a_branch_stays_known_after_its_prepare_was_deleted(
    steps: list[dict[str, Any]], snapshots: tuple[int, ...]
) -> None:
    row = together(7, steps, BranchFacts(snapshots=snapshots, start=5))
    assert (row["outcome"], row["wrong"]) == (FORCED, None)


@pytest.mark.rule("DUR-3")
@pytest.mark.parametrize(
    "steps",
    [
        [step("prepared", 20, snapshot=True)],
        [step(FORCED, 20, snapshot=True)],
        [step(FORCED, 12), step(FORCED, 20, snapshot=True)],
    ],
)
def test_a_branch_that_no_older_snapshot_has_was_never_prepared(steps: list[dict[str, Any]]) -> None:
    row = together(7, steps, BranchFacts(snapshots=(10, 20), start=5))
    assert row["wrong"] == "unprepared"


@pytest.mark.rule("DUR-1")
@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        ([step(FORCED, 8), step(FORCED, 20, snapshot=True)], "lost"),
        ([step(FORCED, 10, snapshot=True)], "lost"),
        ([step(FORCED, 10, snapshot=True), step("forgotten", 12)], None),
        ([step(FORCED, 4)], None),
        ([step("rolled back", 8), step("forgotten", 12)], "forgotten"),
        ([step("forgotten", 8), step("forgotten", 12)], "forgotten"),
        ([step("forgotten", 8), step("rolled back", 12)], "twice"),
        ([step("forgotten", 8), step("prepared", 10, snapshot=True), step("prepared", 20, snapshot=True)], "again"),
        ([step("forgotten", 8), step(FORCED, 10, snapshot=True), step(FORCED, 20, snapshot=True)], "changed"),
        ([step(FORCED, 8), step("forgotten", 9), step(FORCED, 10, snapshot=True)], "changed"),
        ([step("prepared", 6), step(FORCED, 8), step("forgotten", 9), step(FORCED, 10, snapshot=True)], "changed"),
    ],
)
def test_what_is_left_of_a_branch_must_agree_after_its_prepare_was_deleted(
    steps: list[dict[str, Any]], wrong: str | None
) -> None:
    assert together(7, steps, BranchFacts(snapshots=(10, 20), start=5))["wrong"] == wrong


@pytest.mark.rule("TX-5")
@pytest.mark.parametrize(
    ("prepared", "applied", "deleted", "what"),
    [
        (["publish 1 2"], ["publish 1 2"], [], None),
        (["publish 1 2"], [], [], "0 messages were published to queue 1, 2 were prepared"),
        (["publish 1 2"], [], [1], None),
        ([], ["publish 1 1"], [], "1 messages were published to queue 1, 0 were prepared"),
        (["reject 2 5 1"], ["reject 2 5 1", "publish 9 1"], [], None),
        (
            ["settle 2 5 1"],
            ["settle 2 5 1", "publish 9 1"],
            [],
            "1 messages were published to queue 9, 0 were prepared",
        ),
        (["settle 2 5 2"], ["settle 2 5 1"], [], "position 6 of queue 2 was not settled"),
        (["settle 2 5 1"], ["settle 2 5 2"], [], "position 6 of queue 2 was settled, but had not been prepared"),
        (["return 2 5 1"], ["settle 2 5 1"], [], None),
        (["release 2 14"], ["settle 2 5 9", "release 2 14"], [], None),
        (["release 2 14"], [], [], None),
        (["release 2 14"], ["settle 2 5 9"], [], "position 5 of queue 2 was settled, but had not been prepared"),
        (
            ["release 2 14"],
            ["settle 2 5 9", "release 2 13"],
            [],
            "a group's reservation on queue 2 was settled up to a different number than prepared",
        ),
        (["settle 2 5 2"], ["settle 2 5 1", "reject 2 6 1"], [], "position 6 of queue 2 was not settled as prepared"),
        (["place 1 2 64"], ["place 1 2 64"], [], None),
        (["place 1 2 64"], ["fetch 1 2 64"], [], None),
        (["place 1 2 64"], ["publish 1 2"], [], None),
        (
            ["place 1 2 64"],
            ["place 1 2 128"],
            [],
            "the block at LSN 0x80 was placed on a queue, but had not been prepared",
        ),
        (
            ["place 1 2 64"],
            ["fetch 1 2 32"],
            [],
            "the block at LSN 0x20 was placed on a queue, but had not been prepared",
        ),
        (["place 1 2 64"], ["fetch 1 2 128"], [], None),
    ],
)
def test_a_commit_that_differs_from_its_preparation_is_described(
    prepared: list[str], applied: list[str], deleted: list[int], what: str | None
) -> None:
    assert difference(prepared, applied, deleted, prepare_lsn=60) == what


@pytest.mark.rule("TX-5")
@pytest.mark.parametrize(
    ("prepared", "published", "settled", "deleted", "what"),
    [
        (["publish 1 2", "publish 2 1"], 3, 0, [], None),
        (["publish 1 2", "publish 2 1"], 2, 0, [], "2 messages were published, 3 were prepared"),
        (["publish 1 2", "publish 2 1"], 2, 0, [2], None),
        (["publish 1 2", "publish 2 1"], 1, 0, [2], "1 messages were published, 2 were prepared"),
        (["publish 1 2"], 3, 0, [], "3 messages were published, 2 were prepared"),
        (["publish 1 2", "settle 3 5 2"], 2, 0, [], "0 messages were settled, 2 were prepared"),
        (["publish 1 2", "settle 3 5 2"], 2, 0, [3], None),
        (["publish 1 2", "reject 3 5 2"], 4, 2, [], None),
    ],
)
def test_a_commit_whose_effects_are_unknown_is_compared_by_its_counts(
    prepared: list[str], published: int, settled: int, deleted: list[int], what: str | None
) -> None:
    commit = {**step("committed", 2), "effects": None, "published": published, "settled": settled}
    assert together(7, [step("prepared", 1, *prepared), commit], BranchFacts(frozenset(deleted)))["wrong"] == what
