"""Readable tables of figures."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.cli.tables import (
    alarms_line,
    branches_line,
    half_line,
    longest_first,
    oldest_first,
    show_connections,
    show_queues,
    show_rows,
    show_status,
    shown,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (1234567, "1,234,567"),
        (["a", 1], "a, 1"),
        ({"a": 1, "b": True}, "a=1, b=yes"),
        ("x", "x"),
    ],
)
def test_values_are_shown_as_text(value: Any, text: str) -> None:
    assert shown(value) == text


def test_text_that_looks_like_markup_is_shown_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"name": "[red]q[/red]"}], ["name"])
    assert "[red]q[/red]" in capsys.readouterr().out


@pytest.mark.rule("DUR-4")
def test_unavailable_queues_are_shown_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    queue = {"vhost": "/", "name": "q", "type": "classic", "durable": True, "ready": 1, "unsettled": 3, "consumers": 0}
    show_queues([{**queue, "unavailable": ""}])
    assert "unavailable" not in capsys.readouterr().out
    show_queues([{**queue, "unavailable": "the journal cannot be read"}])
    head, line, *_ = capsys.readouterr().out.splitlines()
    assert head.endswith("unavailable")
    assert line.endswith("the journal cannot be read")


def test_alarms_are_shown_in_one_line() -> None:
    assert alarms_line([], 0) == "none"
    assert alarms_line(["memory", "disk"], 0) == "memory, disk: publishers are blocked"
    assert alarms_line([], 1) == "1 queue is unavailable: see `escrowmq queues`"
    assert alarms_line(["disk"], 2) == "disk: publishers are blocked; 2 queues are unavailable: see `escrowmq queues`"


def test_an_empty_list_has_a_head(capsys: pytest.CaptureFixture[str]) -> None:
    show_queues([])
    show_connections([])
    assert "ready" in capsys.readouterr().out


def test_columns_for_messages_in_doubt_appear_only_if_necessary(capsys: pytest.CaptureFixture[str]) -> None:
    queue = {"vhost": "/", "name": "q", "type": "classic", "durable": True, "ready": 1, "unsettled": 3, "consumers": 0}
    show_queues([{**queue, "locked": 0, "withheld": 0}])
    assert "locked" not in capsys.readouterr().out
    show_queues([{**queue, "locked": 2, "withheld": 0}])
    head, line, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[-3:] == ["unsettled", "locked", "consumers"]
    assert line.split()[-3:] == ["3", "2", "0"]


@pytest.mark.parametrize(
    ("branches", "in_doubt", "heuristic", "text"),
    [
        (0, 0, 0, "none"),
        (3, 0, 0, "3"),
        (3, 2, 0, "3, 2 in doubt, the oldest for 1:01:01: see `escrowmq tx list`"),
        (1200, 0, 1, "1,200, 1 decided by an operator and not forgotten"),
    ],
)
def test_branches_are_counted(branches: int, in_doubt: int, heuristic: int, text: str) -> None:
    counts = {"branches": branches, "in_doubt": in_doubt, "in_doubt_seconds": 3661, "heuristic": heuristic}
    assert branches_line(counts) == text


def test_the_longest_queue_and_the_oldest_connection_are_first() -> None:
    connections = [{"peer": "new", "seconds": 1}, {"peer": "old", "seconds": 9}]
    assert [row["peer"] for row in sorted(connections, key=oldest_first)] == ["old", "new"]
    queue = {"vhost": "/", "type": "classic", "durable": True, "unsettled": 0, "locked": 0, "consumers": 0}
    rows = [{**queue, "name": "short", "ready": 1}, {**queue, "name": "long", "ready": 9}]
    assert [row["name"] for row in sorted(rows, key=longest_first)] == ["long", "short"]


def test_a_long_line_is_not_folded_and_nothing_of_a_name_reaches_the_terminal_raw(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "q" * 200
    queue = {"vhost": "/", "type": "classic", "durable": True, "ready": 0, "unsettled": 0, "consumers": 0}
    show_queues([{**queue, "name": name}, {**queue, "name": "\x1b]0;owned\x07"}])
    out = capsys.readouterr().out
    assert name in out
    assert "\\x1b]0;owned\\x07" in out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 3


def test_lines_end_without_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"name": "a", "note": None}, {"name": "long", "note": "x"}], ["name", "note"])
    assert capsys.readouterr().out.splitlines() == ["name  note", "a", "long  x"]


def test_numbers_are_aligned_right_and_words_left(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"durable": True, "ready": 7}, {"durable": False, "ready": 1234}], ["durable", "ready"])
    assert capsys.readouterr().out.splitlines() == ["durable  ready", "yes          7", "no       1,234"]


@pytest.mark.parametrize(
    ("pending", "parked", "text"),
    [
        (0, 0, "none"),
        (1200, 0, "1,200 pending, the oldest for 0:00:07"),
        (1, 2, "1 pending, the oldest for 0:00:07; 2 parked, the oldest for 1:00:00: see `escrowmq half list`"),
    ],
)
def test_half_messages_without_a_decision_are_shown_in_one_line(pending: int, parked: int, text: str) -> None:
    counts = {"pending": pending, "pending_seconds": 7, "parked": parked, "parked_seconds": 3600}
    assert half_line(counts) == text


def test_the_status_counts_snapshots_since_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {"records": 0, "batches": 0, "syncs": 0, "sync_us_median": 0, "disk_bytes": 1024, "segments": 1}
    show_status(
        {
            **dict.fromkeys(("version", "python", "event_loop", "pid", "data_dir"), "x"),
            **dict.fromkeys(("uptime_seconds", "unavailable_queues", "connections", "connections_accepted"), 0),
            "listeners": [],
            "alarms": [],
            "memory": {"resident_bytes": 1, "limit_bytes": 2},
            "disk": {"free_bytes": 1, "limit_bytes": 2},
            "queues": {"count": 0, "ready": 0, "unsettled": 0, "consumers": 0, "delayed": 2},
            "transactions": {"branches": 0},
            "half_messages": {"pending": 0, "parked": 0},
            "journal": {**numbers, "snapshots": 0, "maintenance": "idle"},
        }
    )
    shown = capsys.readouterr().out
    assert "1.0 KiB in 1 segment, 0 snapshots since the start" in shown
    assert "half messages  none" in shown
