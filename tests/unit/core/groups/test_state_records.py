"""The state of groups in a snapshot equals that in the log."""

from __future__ import annotations

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
