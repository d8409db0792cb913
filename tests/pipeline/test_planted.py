"""The audit finds every planted fault with its name, subject and LSN, and reports nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.core.half.state import HalfState
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.groups import ProgressCause
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.queue_state import encode_delivered
from escrowmq.core.records.settling import encode_settle
from escrowmq.journal.format import FILE_HEADER_SIZE
from escrowmq.pipeline.events import BUCKET_BITS
from tests.pipeline.direct import audited
from tests.pipeline.journals import Scribe
from tests.pipeline.planted import PLANTED, Expected, good
from tests.pipeline.planted_groups import (
    GROUPS,
    STREAM,
    good_group,
    group_stream,
    lease,
    progress,
    settle_for_group,
    settled_for_group,
)
from tests.pipeline.planted_journals import HIDDEN_QUEUE, WHOLE, decided_half, good_half, good_links, store_half


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("name", sorted(set(PLANTED) - {"undecided"}))
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        for queue in (2, 3):
            scribe.queue(queue, f"good {queue}")
        scribe.queue(1, name)
        good(scribe, 2)
        expected = PLANTED[name](scribe, 1, name)
        scribe.frame()
        good(scribe, 3)
    assert audited(tmp_path).wrong == [(expected.name, expected.subject, expected.lsn)]


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("plant", [*WHOLE, *GROUPS], ids=lambda plant: plant.__name__)
def test_a_fault_of_the_whole_journal_is_found(plant: object, tmp_path: Path) -> None:
    assert callable(plant)
    with Scribe(tmp_path) as scribe:
        expected: Expected = plant(scribe)
    assert audited(tmp_path).wrong == [(expected.name, expected.subject, expected.lsn)]


@pytest.mark.rule("PIPE-5")
def test_a_record_of_several_rollbacks_that_delivers_is_found(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        good_half(scribe)
        store_half(scribe, 8)
        removed = scribe.settled(HIDDEN_QUEUE, [4, 8], Outcome.ROLLED_BACK)
        decided = [decided_half(scribe, number, HalfState.ROLLED_BACK) for number in (4, 8)]
        lsn = scribe.commit(scribe.published([(1, 4)]), removed, *decided, branch=0)
    assert audited(tmp_path).wrong == [("against its decision", f"half message {number}", lsn) for number in (4, 8)]


def test_good_journals_are_clean(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        for queue in range(1, 5):
            scribe.queue(queue, f"q{queue}")
            good(scribe, queue)
    found = audited(tmp_path)
    assert found.wrong == []
    assert {row["outcome"] for row in found.branches} == {"committed", "rolled back"}
    outcomes = [row["outcome"] for row in found.messages if row["queue"] == "q1"]
    assert outcomes == ["purged", "purged", "accepted", "accepted", None, "accepted", None]


def test_good_links_are_clean(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        good_links(scribe)
    assert audited(tmp_path).wrong == []


def test_good_half_messages_are_clean(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        good_half(scribe)
    assert audited(tmp_path).wrong == []


def test_a_good_group_is_clean(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        good_group(scribe)
    assert audited(tmp_path).wrong == []


def test_progress_may_be_reset(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        good_group(scribe)
        progress(scribe, 2, ProgressCause.RESET)
        lease(scribe, 2, 1, generation=8)
        settle_for_group(scribe, 2, 1, generation=8, floor=3)
    assert audited(tmp_path).wrong == []


def test_progress_may_pass_messages_that_have_left_the_stream(tmp_path: Path) -> None:
    """The group notices that before the end of the turn, when it is recorded for the stream."""
    with Scribe(tmp_path) as scribe:
        good_group(scribe)
        lease(scribe, 8, 1, generation=8)
        settled_for_group(scribe, 8, 1, generation=8, floor=9)
        scribe.append(Kind.SETTLE, encode_settle(STREAM, Outcome.PURGED, [(1, 7)]))
    assert audited(tmp_path).wrong == []


def test_attempts_are_not_bounded_without_a_dead_letter_topic(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        group_stream(scribe, dead_letters=False)
        for attempts in range(1, 8):
            lease(scribe, 1, 1, generation=attempts, attempts=attempts)
            scribe.frame(2000)
    assert audited(tmp_path).wrong == []


@pytest.mark.rule("DUR-1")
def test_a_message_whose_segment_was_deleted_is_reported_as_lost(tmp_path: Path) -> None:
    with Scribe(tmp_path, segment_bytes=4096) as scribe:
        scribe.queue(1, "q")
        scribe.publish(1, 1)
        for _ in range(20):
            scribe.frame()
            scribe.append(*_filler(scribe))
        scribe.snapshot({1: [(1, 1)]})
        scribe.publish(1, 2)
    assert not (tmp_path / f"{0:016x}.log").exists()
    assert [(name, subject) for name, subject, _ in audited(tmp_path).wrong] == [("lost", "q 1")]


def test_faults_across_a_border_of_buckets_are_found(tmp_path: Path) -> None:
    border = 1 << BUCKET_BITS
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "q")
        scribe.publish(1, border - 3, 2)
        scribe.frame()
        early = scribe.append(Kind.DELIVERED, encode_delivered(1, border + 2))
        scribe.frame()
        scribe.commit(scribe.published([(1, border - 1)]))
    assert audited(tmp_path).wrong == [("visible too early", f"q {border - 1}", early)]


def test_priorities_of_deleted_records_are_not_guessed(tmp_path: Path) -> None:
    with Scribe(tmp_path, segment_bytes=4096) as scribe:
        for position, priority in ((1, 1), (2, 5)):
            kind, parts = scribe.published([(1, position)], priority=priority)
            scribe.append(kind, *parts)
        for _ in range(5):
            scribe.frame()
            scribe.append(*_filler(scribe))
        scribe.snapshot({})
        scribe.queue(1, "q", **{"x-max-priority": 5})
        scribe.deliver(1, [2])
        scribe.deliver(1, [1])
    (tmp_path / f"{0:016x}.log").unlink(missing_ok=True)
    found = audited(tmp_path)
    assert found.plan.start > 0
    assert found.wrong == []


def test_numbers_of_queues_may_be_large(tmp_path: Path) -> None:
    numbers = [1, (1 << 19) + 1, (1 << 20) + 1, (1 << 32) - 1]
    with Scribe(tmp_path) as scribe:
        for number in numbers:
            scribe.queue(number, f"q{number}")
            good(scribe, number)
    found = audited(tmp_path)
    assert found.wrong == []
    assert {row["queue_id"] for row in found.messages} == set(numbers)


@pytest.mark.parametrize("arguments", [{"x-max-priority": 5}, {"x-queue-type": "stream"}], ids=["priorities", "stream"])
def test_a_queue_whose_declaration_was_deleted_may_be_of_any_kind(arguments: dict[str, object], tmp_path: Path) -> None:
    with Scribe(tmp_path, segment_bytes=4096) as scribe:
        scribe.queue(1, "q", **arguments)
        for _ in range(5):
            scribe.frame()
            scribe.append(*_filler(scribe))
        scribe.snapshot({})
        kind, parts = scribe.published([(1, 2)], priority=5)
        scribe.publish(1, 1)
        scribe.append(kind, *parts)
        scribe.frame()
        scribe.deliver(1, [2])
        scribe.deliver(1, [1])
        if "x-queue-type" in arguments:
            scribe.deliver(1, [1])
        scribe.frame()
        scribe.delete(1, "q")
        scribe.snapshot({})
    (tmp_path / f"{0:016x}.log").unlink(missing_ok=True)
    for with_its_declaration in sorted(tmp_path.glob("*.snapshot"))[:-1]:
        with_its_declaration.unlink()
    found = audited(tmp_path)
    assert found.plan.start > 0
    assert found.wrong == []


def _filler(scribe: Scribe) -> tuple[Kind, bytes]:
    """Return an unused page, which fills segments."""
    block = encode_block(scribe.now_us // 1000, Envelope("", "q", protocol=91, durable=False), [b"x" * 1000])
    return Kind.PAGE, b"".join(map(bytes, block))


@pytest.mark.rule("DUR-3")
@pytest.mark.parametrize("sealed", [False, True])
def test_the_log_after_a_broken_frame_is_still_read(tmp_path: Path, sealed: bool) -> None:
    with Scribe(tmp_path, segment_bytes=4096 if sealed else 1 << 20) as scribe:
        scribe.queue(1, "q")
        scribe.frame()
        broken = scribe.publish(1, 1)
        scribe.frame()
        for position in range(2, 100):
            scribe.publish(1, position)
            scribe.frame()
    path = tmp_path / "0000000000000000.log"
    content = bytearray(path.read_bytes())
    content[broken + FILE_HEADER_SIZE] ^= 1
    path.write_bytes(content)
    found = audited(tmp_path)
    assert [row["position"] for row in found.messages] == list(range(2, 100))
    (changed, difference, _), (name, subject, lsn) = sorted(found.wrong, reverse=True)
    assert (name, subject) == ("damaged log", path.name)
    assert lsn < broken
    assert changed == "record changed"  # its digest stands in the next frame
    assert f"LSN {lsn:#x} differs" in difference
