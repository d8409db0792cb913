"""Violations against records that an earlier run has read. All cases share a journal and three runs of the audit.

Each case has queues and branches of its own, and two parts, between which the audit runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from escrowmq.core.records.branches import encode_number
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.queue_state import encode_delivered
from escrowmq.pipeline.audit import audit
from escrowmq.pipeline.events import BUCKET_BITS
from escrowmq.pipeline.verdict import Verdict
from tests.pipeline.journals import Scribe
from tests.pipeline.planted import good, prepare, relocate
from tests.pipeline.planted_groups import good_group, progress, settle_for_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BORDER = 1 << BUCKET_BITS
Part = Callable[[Scribe], object]
Found = set[tuple[str, str, int | None]]
"""Name of the violation; queue and position of the message, or the branch's number and None."""


def repeated_first(scribe: Scribe) -> None:
    scribe.queue(1, "a")
    scribe.queue(2, "waits")
    scribe.publish(1, 1, 3)
    scribe.publish(2, 1, 2)
    scribe.frame()
    scribe.settle(1, [1, 2])
    scribe.branch = 100
    scribe.commit(scribe.settled(1, [3]))


def repeated_second(scribe: Scribe) -> None:
    relocate(scribe, 2, [1, 2], [b"body", b"bodY"])
    scribe.settle(1, [1, 3])
    scribe.publish(1, 2)
    scribe.branch = 100
    scribe.commit(scribe.published([(1, 4)]))


REPEATED: Found = {
    ("settled twice", "a", 1),
    ("settled twice", "a", 3),
    ("duplicated", "a", 2),
    ("content changed", "waits", 2),
    ("half-applied transaction", "101", None),
}


def decided_first(scribe: Scribe) -> None:
    scribe.queue(3, "decided")
    scribe.publish(3, 1, 4)
    scribe.frame()
    scribe.branch = 200
    for settle in (1, 2, 3, 4):
        prepare(scribe, 3, settle)
    for branch in (201, 203, 204):
        scribe.append(Kind.ROLLBACK, encode_number(branch))
    scribe.commit(scribe.settled(3, [2]), scribe.published([(3, 5)], [b"one", b"two"]), branch=202)


def decided_second(scribe: Scribe) -> None:
    scribe.commit(scribe.settled(3, [1]), branch=201)
    scribe.append(Kind.ROLLBACK, encode_number(202))
    scribe.append(Kind.ROLLBACK, encode_number(203))  # repeats the decision, which is allowed
    scribe.append(Kind.ROLLBACK, encode_number(205))
    scribe.branch = 203
    prepare(scribe, 3, 4)


DECIDED: Found = {
    ("decision contradicted", "201", None),
    ("decision contradicted", "202", None),
    ("came back", "204", None),
    ("undecided too long", "204", None),
    ("never prepared", "205", None),
}


def handed_first(scribe: Scribe) -> int:
    """Returns the LSN of the record of the hand-out."""
    scribe.queue(4, "handed")
    scribe.publish(4, 1)
    scribe.frame()
    return scribe.append(Kind.DELIVERED, encode_delivered(4, 3))


def handed_second(scribe: Scribe) -> None:
    scribe.publish(4, 2, 2)


HANDED: Found = {("visible too early", "handed", 2)}


def ordered_first(scribe: Scribe) -> None:
    scribe.queue(5, "in order")
    scribe.queue(6, "border")
    scribe.queue(7, "ranked", **{"x-max-priority": 5})
    scribe.publish(5, 1, 4)
    scribe.publish(6, BORDER - 2, 4)
    for position, priority in ((1, 1), (2, 5)):
        kind, parts = scribe.published([(7, position)], priority=priority)
        scribe.append(kind, *parts)
    scribe.frame()
    scribe.deliver(5, [1, 3])
    scribe.deliver(6, [BORDER - 2, BORDER])
    scribe.deliver(7, [2])
    scribe.settle(5, [1, 3])
    scribe.frame()
    scribe.deliver(6, [BORDER - 1])


def ordered_second(scribe: Scribe) -> None:
    scribe.deliver(5, [2, 4])
    scribe.deliver(7, [1])
    scribe.deliver(6, [BORDER + 1])


ORDERED_FIRST: Found = {("delivered out of order", "border", BORDER - 1)}
ORDERED: Found = {*ORDERED_FIRST, ("delivered out of order", "in order", 2)}


def grouped_second(scribe: Scribe) -> None:
    progress(scribe, 3)
    settle_for_group(scribe, 4, 1, generation=3, floor=5)


GROUPED: Found = {("progress went back", "orders-0", 3), ("settled by a stale handle", "orders-0", 4)}


class Runs(NamedTuple):
    """The verdicts of the three runs, the violations after the first and after the second, and results of parts."""

    verdicts: list[Verdict]
    first: list[dict[str, Any]]
    second: list[dict[str, Any]]
    results: dict[Part, object]


@pytest.fixture(scope="module")
def runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The last run reads further records, which are good."""
    folder = tmp_path_factory.mktemp("runs")
    verdicts: list[Verdict] = []
    found: list[list[dict[str, Any]]] = []
    results: dict[Part, object] = {}
    parts: tuple[tuple[Part, ...], ...] = (
        (repeated_first, decided_first, handed_first, ordered_first, good_group),
        (repeated_second, decided_second, handed_second, ordered_second, grouped_second),
        (further,),
    )
    for some in parts:
        with Scribe(folder / "journal") as scribe:
            for part in some:
                results[part] = part(scribe)
                scribe.frame()
        verdicts.append(audit(folder / "journal", folder / "out", spark=spark))
        table = spark.read.parquet(str(folder / "out" / "gold" / "violations"))
        found.append([row.asDict() for row in table.collect()])
    return Runs(verdicts, found[0], found[1], results)


def further(scribe: Scribe) -> None:
    scribe.branch = 300
    scribe.queue(8, "b")
    good(scribe, 8)


def violations(rows: list[dict[str, Any]]) -> Found:
    return {(row["name"], row["queue"] or row["branch"], row["position"]) for row in rows}


def of(rows: list[dict[str, Any]], *subjects: str) -> Found:
    """The violations of some queues and branches."""
    return {each for each in violations(rows) if each[1] in subjects}


def test_messages_settled_published_or_changed_again_are_found(runs: Runs) -> None:
    assert not of(runs.first, "a", "waits", "101")
    assert of(runs.second, "a", "waits", "101") == REPEATED


@pytest.mark.rule("HALF-3")
def test_a_decision_that_contradicts_one_of_an_earlier_run_is_found(runs: Runs) -> None:
    branches = [str(number) for number in range(201, 206)]
    assert not of(runs.first, "decided", *branches)
    assert of(runs.second, "decided", *branches) == DECIDED


def test_a_publication_after_an_earlier_run_has_seen_the_hand_out_is_found(runs: Runs) -> None:
    assert not of(runs.first, "handed")
    assert of(runs.second, "handed") == HANDED
    (row,) = [row for row in runs.second if row["queue"] == "handed"]
    assert runs.results[handed_first] in row["lsns"]


@pytest.mark.rule("ORD-1")
def test_deliveries_are_in_order_across_runs_and_buckets(runs: Runs) -> None:
    queues = ("in order", "border", "ranked")
    assert of(runs.first, *queues) == ORDERED_FIRST
    assert of(runs.second, *queues) == ORDERED


@pytest.mark.rule("GRP-5")
def test_the_progress_of_groups_is_followed_across_runs(runs: Runs) -> None:
    assert not of(runs.first, "orders-0")
    assert of(runs.second, "orders-0") == GROUPED


def test_there_are_no_other_violations_and_each_is_new_once(runs: Runs) -> None:
    assert violations(runs.first) == ORDERED_FIRST
    assert violations(runs.second) == REPEATED | DECIDED | HANDED | ORDERED | GROUPED
    first, second, third = runs.verdicts
    assert (first.violations, first.fresh) == (1, 1)
    assert (second.violations, second.fresh) == (len(runs.second), len(runs.second) - 1)
    late = 1  # a branch that is in doubt for too long counts in each run
    assert (third.violations, third.fresh) == (second.violations, late)
    assert not third.clean
