"""The demonstration draws the right conclusions from the events of Spark's driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.demo.display import Lines
from escrowmq.demo.driver import Job, reason
from escrowmq.demo.events import Begun, Decided, Failed, Lost, Stopped
from escrowmq.demo.streaming import FAILURES, Broken, Streaming, verdict


@pytest.fixture
def streaming(tmp_path: Path) -> Streaming:
    return Streaming(Lines(100), Job("amqp://127.0.0.1:1/", "app", tmp_path, 10))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Decided(7, 30, before=False), "epoch 7 was not decided, and nothing of it was visible: it was run again"),
        (Decided(7, 30, before=True), "epoch 7 had been decided by the broker: Spark ran it again, but nothing was"),
        (Decided(8, 30, before=False), "epoch 7 was complete and is not run again"),
    ],
)
def test_the_epoch_of_a_kill_is_resolved(event: Decided, words: str) -> None:
    assert words in verdict(7, event)


def test_an_epoch_reported_twice_counts_once(streaming: Streaming) -> None:
    first, again, next_one = Decided(0, 30, before=False), Decided(0, 30, before=True), Decided(1, 5, before=False)
    for event in (Begun(0), first, Begun(0), again, next_one):
        streaming.told(event)
    assert streaming.processed == 35
    assert streaming.known == 1


def test_a_query_lost_in_an_epoch_is_reported_with_its_outcome(
    streaming: Streaming, capsys: pytest.CaptureFixture[str]
) -> None:
    for event in (Begun(3), Lost("the broker has gone"), Begun(3), Decided(3, 30, before=True)):
        streaming.told(event)
    out = capsys.readouterr().out
    assert "the query has failed in epoch 3: the broker has gone" in out
    assert "epoch 3 had been decided by the broker" in out


def test_a_query_that_fails_without_a_kill_ends_the_program(streaming: Streaming) -> None:
    for _ in range(FAILURES):
        streaming.told(Lost("no"))
    with pytest.raises(Broken, match="keeps failing: no"):
        streaming.told(Lost("no"))


def test_a_driver_that_cannot_continue_ends_the_program(streaming: Streaming) -> None:
    with pytest.raises(Broken, match=r"driver: no Java; Spark's log: .*spark\.log"):
        streaming.told(Failed("driver: no Java"))


def test_the_end_of_the_driver_is_detected(streaming: Streaming) -> None:
    streaming.told(Stopped())
    assert streaming.stopped


def test_the_line_of_our_own_error_is_shown_for_a_failure_in_spark() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n"
        "  File spark/pool.py, line 1\n"
        "escrowmq.spark.errors.BrokerUnavailableError: 127.0.0.1:5672: nobody answers\n\n"
        "JVM stacktrace:\n"
    )
    assert reason(text) == "127.0.0.1:5672: nobody answers"
    assert reason("something else\nand more") == "something else"
    assert reason("") == "unknown"
