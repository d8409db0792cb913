"""`escrowmq replica status` shows who leads, how far each node follows, the engine, and the take-overs."""

from __future__ import annotations

from escrowmq.cli.replica import _lines
from tests.unit.admin.standings import standing


def test_the_lines_of_a_leader() -> None:
    assert list(_lines(standing())) == [
        "node       n1 (leader)",
        "leader     n1 amqp://n1 since epoch 4",
        "journal    up to LSN 0x1000, position 77 of the log",
        "engine     NATS (reachable), 2 of 3 replicas in sync, led by n0",
        "settings   the stream s: max_age is 1, not 0, checked 12 s ago",
        "leader     n1 amqp://n1 at LSN 0x1000, 0 bytes and 0 s behind",
        "standby    n2 amqp://n2 at LSN 0x400 70 s ago, 3.0 KiB and 70 s behind",
        "take-over  epoch 4 by n1 from n2 at 2017-07-14 02:40:00 UTC, whose process had ended, after 0.3 s",
    ]


def test_a_node_that_cannot_follow_says_why() -> None:
    engine = standing()["engine"] | {"reachable": False, "fault": "no route", "wrong_settings": []}
    lines = list(_lines(standing(fault="no route", engine=engine, leader="", leader_url="")))
    assert "fault      no route" in lines
    assert "engine     NATS (does not answer: no route)" in lines
    assert "settings   right, checked 12 s ago" in lines
    assert "leader     none that this node knows of" in lines


def test_a_node_that_still_reads_the_log_says_so() -> None:
    shown = [line for line in _lines(standing(reading=True)) if line.startswith("reading")]
    assert shown == ["reading    this node still reads the replicated log, and cannot take over before it has read it"]


def test_settings_that_were_not_checked_yet_are_not_called_right() -> None:
    engine = standing()["engine"] | {"checked_seconds": None, "wrong_settings": []}
    assert "settings   not checked yet" in _lines(standing(engine=engine))


def test_an_engine_that_was_asked_in_vain_is_not_called_reachable() -> None:
    (line,) = (
        line for line in _lines(standing(engine=standing()["engine"] | {"answered_seconds": 9.0})) if "NATS" in line
    )
    assert line.startswith("engine     NATS (last answered 9 s ago), ")


def test_a_leader_without_an_answer_of_the_log_says_that_clients_wait() -> None:
    (line,) = (line for line in _lines(standing(silent=True)) if line.startswith("silent"))
    assert "clients wait" in line
    assert not any(line.startswith("silent") for line in _lines(standing()))
