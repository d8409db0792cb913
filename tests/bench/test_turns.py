"""The longest turn of a loop, in CPU time, as another process sees it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.brokers import TimedEscrowMQ
from bench.probe import Probe
from bench.turns import LongestTurn, TimedPolicy


def busy(seconds: float) -> None:
    """Use the processor for the given time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def run(longest: LongestTurn, *turns: float) -> None:
    """Run a loop whose turns use the processor for the given numbers of seconds."""
    loop = TimedPolicy(longest).new_event_loop()

    async def main() -> None:
        for seconds in turns:
            busy(seconds)
            await asyncio.sleep(0)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_the_longest_turn_is_seen_by_others(tmp_path: Path) -> None:
    run(LongestTurn(tmp_path / "turn"), 0.01, 0.05, 0.02)
    assert 0.05 <= LongestTurn(tmp_path / "turn").seconds < 0.07


def test_waiting_is_no_work(tmp_path: Path) -> None:
    longest = LongestTurn(tmp_path / "turn")
    loop = TimedPolicy(longest).new_event_loop()
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    assert longest.seconds < 0.02


def test_it_begins_again_at_zero(tmp_path: Path) -> None:
    longest = LongestTurn(tmp_path / "turn")
    run(longest, 0.05)
    longest.seconds = 0.0
    run(longest, 0.01)
    assert 0.01 <= longest.seconds < 0.05


def test_a_broker_in_a_timed_loop_is_probed(tmp_path: Path) -> None:
    broker = TimedEscrowMQ(tmp_path)
    broker.start()
    try:
        with Probe(broker) as probe:
            give_up = time.monotonic() + 30
            while probe.result().probes < 5:
                assert time.monotonic() < give_up
                broker.depth("bench-probe")
    finally:
        broker.stop()
    seen = probe.result()
    assert seen.turn_ms > 0
    assert seen.latency_ms > 0
