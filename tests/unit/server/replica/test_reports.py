"""A standby reports how far it follows, now and then."""

from __future__ import annotations

from pathlib import Path

from escrowmq.journal.format import TYPE_SEGMENT, FileHeader
from escrowmq.replica.engines.watch import EngineView
from escrowmq.server.replica.status import described
from tests.unit.replica.logs import Log
from tests.unit.server.replica.standbys import led_by_another, read, standby


def test_a_standby_reports_how_far_it_follows_and_the_leader_shows_it(tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log, "amqp://n2")
    leader.begin_segment(FileHeader(TYPE_SEGMENT, bytes(16), 0, 0).pack())
    leader.append_frame(0, [bytes(48)])
    follower = standby(log, tmp_path, lease=3600)
    read(follower)
    follower._reports.give(silent=False)
    follower._reports.give(silent=False)  # again only after a while
    assert log.end() == 4
    leader.prove()
    ((key, seen),) = leader._tail.fold.reports.items()
    assert key == ("n1", "amqp://n1")
    assert (seen.report.lsn, seen.end_lsn) == (48, 48)
    rows = described(follower, EngineView())["nodes"]
    assert [(row["node"], row["role"], row["lsn"], row["behind_bytes"]) for row in rows] == [
        ("n1", "standby", 48, 0),
        ("n2", "leader", 48, 0),
    ]
