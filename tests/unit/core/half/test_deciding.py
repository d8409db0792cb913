"""Decisions that arrive together are written together."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.half import deciding
from escrowmq.core.half.deciding import HalfVerdict
from escrowmq.core.half.queue import RECENT_BYTES
from escrowmq.core.half.state import HalfInput, HalfState
from escrowmq.core.half.storing import HalfArrival
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.kinds import Kind
from tests.unit.core.half.half_site import GROUP, TOPIC, USER, HalfSite

ENVELOPE = Envelope("", "q", durable=True)
COMMIT, ROLL_BACK, UNKNOWN = HalfInput.COMMIT, HalfInput.ROLL_BACK, HalfInput.UNKNOWN


def stored(count: int) -> HalfSite:
    """Return a site with half messages 1 to `count`, which are on disk."""
    site = HalfSite()
    for number in range(1, count + 1):
        site.store(f"m{number}", str(number).encode())
    site.sync()
    return site


@pytest.mark.rule("HALF-2")
def test_commits_and_rollbacks_are_a_record_each_and_survive_a_restart() -> None:
    site = stored(5)
    before = len(site.records(*Kind))
    verdicts = [HalfVerdict(number, ROLL_BACK if number == 3 else COMMIT) for number in (5, 1, 3, 2)]
    results = site.half.decide_each("/", verdicts)
    assert results == [site.journal.end_lsn] * 4
    site.turn(sync=False)
    assert site.contents() == []
    assert len(site.records(*Kind)) == before + 2
    site.sync()
    for each in (site, site.again()):
        assert each.contents() == [b"5", b"1", b"2"]
        assert [each.state(f"m{number}") for number in (1, 3, 4)] == [
            HalfState.COMMITTED,
            HalfState.ROLLED_BACK,
            HalfState.PENDING,
        ]


@pytest.mark.rule("HALF-3")
def test_of_decisions_for_one_message_that_arrive_together_the_first_one_counts() -> None:
    site = stored(2)
    verdicts = [HalfVerdict(1, COMMIT), HalfVerdict(1, ROLL_BACK), HalfVerdict(1, COMMIT), HalfVerdict(2, UNKNOWN)]
    first, second, third, fourth = site.half.decide_each("/", verdicts)
    assert (first, third, fourth) == (site.journal.end_lsn,) * 3
    assert isinstance(second, BrokerError)
    assert second.condition is Condition.ILLEGAL_STATE
    site.sync()
    assert site.contents() == [b"1"]
    assert site.state("m2") is HalfState.PENDING


@pytest.mark.rule("HALF-12")
def test_a_refused_decision_leaves_the_others_alone() -> None:
    site = stored(2)
    verdicts = [HalfVerdict(1, COMMIT, "m2"), HalfVerdict(9, COMMIT), HalfVerdict(2, COMMIT, "m2")]
    wrong = site.half.decide_each("/", verdicts)
    assert [each.condition if isinstance(each, BrokerError) else None for each in wrong] == [
        Condition.NOT_FOUND,
        Condition.NOT_FOUND,
        None,
    ]
    site.sync()
    assert site.contents() == [b"2"]
    (elsewhere,) = site.half.decide_each("other", [HalfVerdict(1, COMMIT)])
    assert isinstance(elsewhere, BrokerError)


@pytest.mark.rule("HALF-2")
def test_many_bytes_are_written_in_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    site = stored(4)
    monkeypatch.setattr(deciding, "BLOCK_BYTES", 2)
    before = len(site.records(*Kind))
    site.half.decide_each("/", [HalfVerdict(number, COMMIT) for number in (1, 2, 3)])
    assert len(site.records(*Kind)) == before + 2
    site.sync()
    assert site.contents() == [b"1", b"2", b"3"]


@pytest.mark.rule("HALF-1", "HALF-2")
def test_a_message_stored_among_others_is_committed_from_the_log() -> None:
    site = HalfSite()
    together = [HalfArrival(str(number), ENVELOPE, str(number).encode(), site.target) for number in range(1, 4)]
    site.half.store_each("/", TOPIC, together, group=GROUP, user=USER)
    site.store("large", bytes(RECENT_BYTES))
    site.sync()
    site.half.decide_each("/", [HalfVerdict(3, COMMIT), HalfVerdict(2, COMMIT)])
    site.sync()
    assert site.contents() == [b"3", b"2"]
    assert site.again().contents() == [b"3", b"2"]
