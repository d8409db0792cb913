"""Deliveries of durable links are judged only where the log tells what their termini have."""

from __future__ import annotations

import pyarrow as pa
import pytest

from escrowmq.pipeline import links
from escrowmq.pipeline.links import LinkFacts, Step

START = 400


def judged(steps: list[tuple[Step, int]], facts: LinkFacts) -> list[int]:
    """Return the LSNs of the deliveries of a message that its terminus did not have. `steps` have LSNs."""
    rows = [(1, 5, bytes(8), int(step), 7, lsn, 0, 0, "") for step, lsn in steps]
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), links.SCHEMA, strict=True)
    ]
    found = links.judge(pa.table(columns, schema=links.SCHEMA), facts)
    return [row["lsn"] for row in found.to_pylist() if row["wrong"] == "unacquired"]


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        ([(Step.DELIVERED, 500), (Step.HELD_IN_SNAPSHOT, 600)], []),
        ([(Step.ACQUIRED, 100), (Step.GIVEN_BACK, 110), (Step.DELIVERED, 500), (Step.HELD_IN_SNAPSHOT, 600)], []),
        ([(Step.GIVEN_BACK, 450), (Step.DELIVERED, 500)], [500]),
        ([(Step.ACQUIRED, 100), (Step.DELIVERED, 700)], []),
        ([(Step.GIVEN_BACK, 110), (Step.DELIVERED, 700)], [700]),
        ([(Step.DELIVERED, 700)], [700]),
    ],
)
def test_an_acquisition_in_a_deleted_part_of_the_log_is_not_missed(
    steps: list[tuple[Step, int]], wrong: list[int]
) -> None:
    facts = LinkFacts(START, told=links.told(START, -1, [600]))
    assert judged(steps, facts) == wrong


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize(
    ("start", "compared", "snapshots", "told"),
    [(0, -1, [600], 0), (400, -1, [600, 700], 600), (400, 300, [600], 600), (400, 400, [600], 400)],
)
def test_a_snapshot_tells_what_termini_have(start: int, compared: int, snapshots: list[int], told: int) -> None:
    assert links.told(start, compared, snapshots) == told


def test_without_a_snapshot_it_is_not_known_what_termini_have() -> None:
    facts = LinkFacts(START, told=links.told(START, -1, []))
    assert judged([(Step.DELIVERED, 10**12)], facts) == []
