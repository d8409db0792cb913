"""The state of groups in a snapshot equals that in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from escrowmq.core.groups.cursor import Cursor
from escrowmq.core.groups.group import Group, Lease
from escrowmq.core.groups.options import GroupOptions
from escrowmq.core.groups.registry import set_fields
from escrowmq.core.groups.state_records import CapturedGroup, GroupCaptures
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.recovery.snapshot import VISITS, Capture, snapshot
from tests.unit.core.groups.consuming import Consuming


def test_a_snapshot_rebuilds_the_cursors() -> None:
    c = Consuming(partitions=2)
    c.publish(*"abcdef")
    leases = c.lease(5)
    c.settle(leases[0], leases[2])
    c.group.change(leases[3].handle, 77)
    c.site.turn()
    states = []
    for compacted in (False, True):
        if compacted:
            c.site.snapshot()
        c = c.restart()
        cursor = c.group.cursor(c.stream)
        states.append((cursor.settled.floor, cursor.settled.ranges(), cursor.out))
    assert states[0] == states[1]
    assert states[0][:2] == (2, [(3, 1)])
    assert set(states[0][2]) == {2, 4, 5}


def test_a_capture_has_the_options_of_its_time() -> None:
    consuming = Consuming(max_attempts=3)
    captured, fields = CapturedGroup(consuming.group), set_fields(consuming.group)
    consuming.site.broker.groups.declare("/", "g", GroupOptions(max_attempts=5))
    (_, (found,)), *_ = captured.records()
    assert decode_change(found) == fields


def of_groups(records: Iterable[tuple[Kind, list[bytes]]]) -> list[tuple[Kind, bytes]]:
    kinds = {Kind.GROUP_SET, Kind.GROUP_LOCKED, Kind.GROUP_PROGRESS, Kind.GROUP_SETTLED, Kind.GROUP_LEASED}
    return sorted((kind, b"".join(parts)) for kind, parts in records if kind in kinds)


class TestPieces:
    """Groups are copied in pieces, and only what has changed since is copied again."""

    def changes(self, c: Consuming) -> list[Callable[[], object]]:
        """Return everything that changes a group or one of its cursors."""
        groups, (first, second, *_) = c.site.broker.groups, c.streams
        other = groups.declare("/", "other")
        other.cursor(first)
        leases: list[Lease] = c.lease(6)
        return [
            lambda: c.lease(2),
            lambda: c.settle(leases[0], leases[2]),
            lambda: c.group.change(leases[1].handle, 77),
            lambda: c.group.give_back(leases[3].handle, 5),
            lambda: c.group.advance(second, 3),
            lambda: other.advance(second, 2),
            lambda: c.group.reset(first, 4),
            lambda: groups.declare("/", "g", GroupOptions(max_attempts=5)),
            lambda: c.group.lock(first, "member", c.site.now + 1000),
            lambda: c.group.unlock(first, "member"),
            lambda: other.lock(second, "member", c.site.now + 1000),
            lambda: groups.declare("/", "new").cursor(second),
            lambda: c.site.broker.topics.delete(c.site.vhost, "t"),
            lambda: groups.delete(other),
        ]

    def test_what_changes_after_its_copy_is_copied_again(self) -> None:
        c = Consuming(partitions=4)
        c.publish(*"abcdefghijkl")
        changes = self.changes(c)
        c.site.turn()
        for behind in range(len(changes)):
            capture = Capture(c.site.broker, 1)
            capture.step()
            changes[behind]()
            c.site.turn()
            while not capture.step():
                pass
            assert of_groups(capture.records()) == of_groups(snapshot(c.site.broker)), behind

    @pytest.mark.rule("FAIR-1")
    def test_the_last_step_looks_at_what_has_changed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        c = Consuming(partitions=20)
        groups = [c.site.broker.groups.declare("/", f"g{number}") for number in range(20)]
        for group in groups:
            for stream in c.streams:
                group.cursor(stream)
        c.publish("a")
        c.site.turn()
        looks = 0
        take = GroupCaptures.take

        def looking(captures: GroupCaptures, each: Group | Cursor) -> int:
            nonlocal looks
            looks += 1
            return take(captures, each)

        monkeypatch.setattr(GroupCaptures, "take", looking)
        capture = Capture(c.site.broker, 5)
        in_step: list[int] = []
        while True:
            done, seen = capture.step(), looks
            in_step.append(seen - sum(in_step))
            if len(in_step) == 10:
                assert groups[0].advance(c.streams[0], 2) == 1 + bool(c.streams[0].end > 1)
            c.site.turn()
            if done:
                break
        assert sum(in_step) <= 21 + 400 + 3
        assert max(in_step) <= 5 * VISITS, "each step is a piece"
        assert in_step[-1] < 5 * VISITS
        assert len(of_groups(capture.records())) == 21 + 400
