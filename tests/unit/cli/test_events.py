"""`escrowmq events` prints an event on a line, and refuses what names no kind or place."""

from __future__ import annotations

import pytest

from escrowmq.cli import main
from escrowmq.cli.events import line_of_event
from escrowmq.evidence.feed import FeedEvent, FeedPlace


def test_an_event_is_one_line_whatever_is_in_its_names() -> None:
    fields = {"vhost": "/", "name": "two\nlines", "durable": True, "note": "two words"}
    event = FeedEvent(FeedPlace(8264, "5f3c9a1e", 17), "QUEUE_DECLARED", 1_790_000_000_123_456, fields)
    assert line_of_event(event) == (
        r'2026-09-21 14:13:20.123 QUEUE_DECLARED vhost=/ name="two\nlines" durable=true note="two words"'
    )


@pytest.mark.parametrize(("option", "value"), [("--kind", "nonsense"), ("--from", "1:2"), ("--from", "x")])
def test_what_names_no_kind_or_place_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    assert main(["events", option, value, "--data-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("escrowmq: ")


def test_without_a_broker_the_command_ends_with_one_line(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert main(["events", "--data-dir", str(tmp_path)]) == 1
    assert "cannot be reached" in capsys.readouterr().err
