"""The table of branches follows from the records of the log and of snapshots."""

from __future__ import annotations

from pathlib import Path

from escrowmq.core.branches.branch import State
from escrowmq.core.branches.xid import Xid
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.branches import (
    Item,
    Prepared,
    SettlementItem,
    encode_decide,
    encode_number,
    encode_prepare,
    encode_settlement,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Range
from escrowmq.core.records.reservations import Held, HeldRange, encode_held, encode_released
from tests.pipeline.direct import audited
from tests.pipeline.journals import Scribe


def test_a_heuristic_decision_in_a_snapshot_is_not_counted_twice(tmp_path: Path) -> None:
    """An operator commits a branch, a snapshot contains the decision, and the branch is forgotten after that."""
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "q")
        scribe.frame()
        now = scribe.now_us // 1000
        xid = Xid(1, b"global", b"branch").encode()
        parts, _ = encode_prepare(Prepared(5, State.PREPARED, now, now, 0, xid, "owner", [], []), [])
        scribe.append(Kind.PREPARE, *parts)
        scribe.frame()
        scribe.append(Kind.HEURISTIC, b"\x01", encode_number(5), b"\0\0\0\0")
        scribe.frame()
        state = Prepared(5, State.HEURISTIC_COMMITTED, now, now, 0, xid, "owner", [], [])
        snapshot, _ = encode_prepare(state, [])
        taken = scribe.journal.begin_snapshot([(int(Kind.PREPARE), b"".join(snapshot))], scribe.now_us)
        taken.write()
        scribe.journal.snapshot_done(taken)
        scribe.append(Kind.FORGET, encode_number(5))
    found = audited(tmp_path)
    assert found.wrong == []
    (row,) = found.branches
    assert (row["outcome"], len(row["records"])) == ("heuristically committed", 3)
    assert row["forgotten_at"] is not None


def test_a_commit_may_dead_letter_a_returned_message_beyond_its_delivery_limit(tmp_path: Path) -> None:
    """The commit settles the message that it should return, and publishes it to the dead-letter queue."""
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "limited", **{"x-delivery-limit": 0})
        scribe.queue(2, "dead")
        scribe.publish(1, 1, 3)
        scribe.frame()
        now = scribe.now_us // 1000
        xid = Xid(1, b"global", b"branch").encode()
        back = encode_settlement(SettlementItem(1, Outcome.ACCEPTED, [Range(1, 2)], requeue=True))
        parts, _ = encode_prepare(Prepared(1, State.PREPARED, now, now, 0, xid, "owner", [], []), [back])
        scribe.append(Kind.PREPARE, *parts)
        scribe.frame()
        scribe.commit(scribe.published([(2, 1)]), scribe.settled(1, [2], Outcome.DELIVERY_LIMIT))
    found = audited(tmp_path)
    assert found.wrong == []
    (row,) = found.branches
    assert (row["outcome"], row["published"], row["settled"]) == ("committed", 1, 1)


def test_a_branch_counts_the_messages_of_a_group_once_it_is_committed(tmp_path: Path) -> None:
    """Only the commit says how many messages the group settles. Until then the branch has one operation."""
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "bulk")
        scribe.publish(1, 1, 3)
        scribe.frame()
        xid = Xid(1, b"global", b"branch").encode()
        scribe.append(Kind.HELD, *encode_held(Held(1, "group", 1, 1, [HeldRange(1, 3, 0)], [])))
        released = encode_released(1, "group", 3, 3)
        parts, _ = encode_prepare(Prepared(1, State.PREPARED, 1, 1, 0, xid, "owner", [], []), [(Item.HOLD, [released])])
        scribe.append(Kind.PREPARE, *parts)
        scribe.frame()
        scribe.queue(2, "other")
        scribe.frame()  # the last frame is not read while the journal is open
        assert [(row["operations"], row["settled"]) for row in audited(tmp_path).branches] == [(1, 0)]
        scribe.commit(scribe.settled(1, [1, 2]), (Kind.RELEASED, [released]))
    found = audited(tmp_path)
    assert found.wrong == []
    assert [(row["outcome"], row["settled"]) for row in found.branches] == [("committed", 2)]


def test_names_that_are_not_utf8_are_shown_with_escapes(tmp_path: Path) -> None:
    """The broker keeps a client's names unchanged, with lone surrogates for bytes that are not UTF-8."""
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "q\udcff")
        scribe.publish(1, 1)
        xid = Xid(1, b"global", b"branch").encode()
        parts, _ = encode_prepare(Prepared(1, State.PREPARED, 1, 1, 0, xid, "owner \udcfe", [], []), [])
        scribe.append(Kind.PREPARE, *parts)
    found = audited(tmp_path)
    assert [row["queue"] for row in found.messages] == ["q\\udcff"]
    assert [row["owner"] for row in found.branches] == ["owner \\udcfe"]


def test_committed_and_rolled_back_branches_name_the_deciding_application(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        for number in (1, 2):
            xid = Xid(1, b"global", b"%d" % number).encode()
            parts, _ = encode_prepare(Prepared(number, State.PREPARED, 1, 1, 0, xid, "owner", [], []), [])
            scribe.append(Kind.PREPARE, *parts)
        scribe.frame()
        parts, _ = encode_decide("/\0app", 9, [1], [(2, [])])
        scribe.append(Kind.DECIDE, *parts)
    found = {row["branch"]: (row["outcome"], row["application"], row["epoch"]) for row in audited(tmp_path).branches}
    assert found == {1: ("rolled back", "app", 9), 2: ("committed", "app", 9)}
