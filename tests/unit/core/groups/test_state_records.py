"""The state of groups in a snapshot equals that in the log."""

from __future__ import annotations

from escrowmq.core.groups.options import GroupOptions
from escrowmq.core.groups.registry import set_fields
from escrowmq.core.groups.state_records import CapturedGroup
from escrowmq.core.records.changes import decode_change
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
