"""The demonstration draws the right conclusions from its counts."""

from __future__ import annotations

from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from escrowmq.demo.broker import Broker
from escrowmq.demo.display import display
from escrowmq.demo.driver import Job
from escrowmq.demo.events import Interrupted, Published, Resolution, Tally
from escrowmq.demo.story import Result, Story, consumer_verdict, publisher_verdict
from escrowmq.demo.streaming import Streaming

GOOD = Result(Published(10, 99, 0), Tally(10, 99, 0, 0, 0, 3, 0), kills=1, doubts=1, seconds=1.0, processed=10)
LOST = Interrupted(7, 3000, 500, commit_sent=True)


def test_a_correct_count_has_no_errors() -> None:
    assert GOOD.faults() == []


@pytest.mark.parametrize(
    ("tally", "words"),
    [
        (replace(GOOD.tally, settled=9, lost=1), "10 published, but 9 consumed"),
        (replace(GOOD.tally, settled=9, lost=1), "1 lost"),
        (replace(GOOD.tally, twice=2), "2 came back"),
        (replace(GOOD.tally, out_of_order=3), "3 out of order"),
        (replace(GOOD.tally, left=4), "4 left"),
        (replace(GOOD.tally, digest=98), "the checksums of"),
    ],
)
def test_each_error_is_named(tally: Tally, words: str) -> None:
    faults = replace(GOOD, tally=tally).faults()
    assert any(words in fault for fault in faults), faults


def test_messages_that_spark_has_not_processed_are_an_error() -> None:
    assert replace(GOOD, processed=9).faults() == ["10 published, but 9 processed by Spark"]


@pytest.mark.parametrize(
    ("found", "words"), [(500, "it is complete"), (0, "it is absent as a whole"), (499, "HALF A TRANSACTION")]
)
def test_the_publishers_doubt_is_resolved(found: int, words: str) -> None:
    assert words in publisher_verdict(LOST, found)


@pytest.mark.parametrize(
    ("resolution", "words"),
    [
        (Resolution(300, 0, 0, 0), "none of them came back: that commit is on disk"),
        (Resolution(300, 300, 0, 0), "all of them came back: that commit is not on disk"),
        (Resolution(300, 299, 0, 0), "299 of them came back: HALF A TRANSACTION"),
        (Resolution(0, 0, 200, 200), "had 200 deliveries that no commit had acknowledged yet; all came back"),
        (Resolution(0, 0, 200, 199), "ONLY 199 came back"),
        (Resolution(0, 0, 0, 0), "had no unsettled delivery"),
    ],
)
def test_the_consumers_doubt_is_resolved(resolution: Resolution, words: str) -> None:
    assert words in consumer_verdict(resolution)


def test_an_interrupt_before_the_first_child_has_started_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_child: BaseProcess) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BaseProcess, "start", interrupted)
    shown = display(1)
    broker = Broker(tmp_path / "data", tmp_path / "broker.log", tmp_path / "broker.toml")
    streaming = Streaming(shown, Job("amqp://127.0.0.1", "flights", tmp_path, 1))
    with pytest.raises(KeyboardInterrupt):
        Story(broker, streaming, shown, 1, 1).play(tmp_path, 1)
