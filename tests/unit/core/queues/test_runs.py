"""Runs in blocks: a step touches one block, however many runs there are."""

from __future__ import annotations

import random

import pytest

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.runs import BLOCK, Runs, TagRun
from tests.unit.core.site import Sink, Site

_RUN = Run(Envelope("", "q"), 1, 0)


def many(count: int) -> tuple[Runs, list[TagRun]]:
    """Return runs of one delivery each, with every second tag."""
    runs, consumer = Runs(), Consumer(Site().queue(), Sink())
    made = [TagRun(2 * i + 1, [Entry(i, b"", _RUN)], consumer, 1) for i in range(count)]
    for run in made:
        runs.append(run)
    return runs, made


@pytest.mark.rule("FAIR-1")
def test_no_block_grows_with_the_number_of_runs() -> None:
    runs, made = many(20 * BLOCK)
    choose = random.Random(1)
    assert list(runs) == made
    for run in choose.sample(made, len(made) // 2):
        at, i = runs.locate(run.first)
        runs.remove(at, i, i + 1)
        at, i = runs.locate(run.first + 1)
        runs.insert(at, i + 1, TagRun(run.first + 1, run.entries, run.consumer, 1))
    assert [run.first for run in runs] == sorted(run.first for run in runs)
    assert len(list(runs)) == len(made)
    assert all(0 < len(block.runs) < 2 * BLOCK for block in runs.blocks)


def test_every_run_is_found_by_its_tag() -> None:
    runs, made = many(3 * BLOCK)
    for number, run in enumerate(made):
        at, i = runs.locate(run.first)
        assert runs.blocks[at].runs[i] is run
        assert list(runs.from_tag(run.first + 1)) == made[number:]
    assert runs.locate(0) == (0, -1)


@pytest.mark.rule("FAIR-2")
def test_consumers_are_forgotten_with_their_block() -> None:
    runs, made = many(2 * BLOCK)
    other = Consumer(made[0].consumer.queue, Sink())
    runs.append(TagRun(10 * BLOCK, [None], other, 1))
    assert set(runs.consumers()) == {made[0].consumer, other}
    runs.remove(0, 0, BLOCK)
    runs.remove(0, 0, BLOCK)
    assert set(runs.consumers()) == {other}
    runs.remove(0, 0, 1)
    assert not runs.consumers()
    assert list(runs) == []
