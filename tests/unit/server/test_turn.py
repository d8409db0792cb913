"""Turns: one end for all ready sockets, the log written concurrently, answers once the log is on disk."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable

import pytest

from escrowmq.journal.memory import Faults, MemoryStorage
from escrowmq.server import fatal
from escrowmq.server.gathering import FEW_RECORDS, SLOW_US, Gathering
from tests.unit.server.benches import Bench, FakeEndpoint, on_loop, until


class Outlet:
    """Counts flushes."""

    def __init__(self, endpoint: FakeEndpoint) -> None:
        self.endpoint = endpoint
        self.sent: list[bytes] = []

    def flush(self) -> None:
        self.sent.append(b"".join(self.endpoint.output()))


def joined(bench: Bench) -> tuple[FakeEndpoint, Outlet]:
    endpoint = FakeEndpoint()
    outlet = Outlet(endpoint)
    bench.turns.outlets[endpoint] = outlet
    return endpoint, outlet


def test_input_that_is_ready_together_shares_a_turn_and_one_output() -> None:
    async def test() -> None:
        bench = Bench()
        endpoint, outlet = joined(bench)

        def activity(text: bytes) -> None:
            bench.turns.begin()
            endpoint.says += text
            bench.turns.dirty[endpoint] = None

        before = bench.turns.count
        loop = asyncio.get_running_loop()
        for text in (b"a", b"b", b"c"):
            loop.call_soon(activity, text)
        await until(lambda: outlet.sent)
        assert outlet.sent == [b"abc"]
        assert bench.turns.count == before + 1
        await bench.close()

    on_loop(test)


def test_the_broker_s_clock_is_set_before_anything_happens() -> None:
    async def test() -> None:
        bench = Bench()
        bench.broker.engine.now = 0
        bench.turns.begin()
        assert bench.broker.engine.now > 1_600_000_000_000
        await bench.close()

    on_loop(test)


def test_no_turn_ends_or_begins_once_they_are_stopped() -> None:
    async def test() -> None:
        bench = Bench()
        before = bench.turns.count
        bench.turns.begin()
        bench.turns.stop()
        await asyncio.sleep(0)
        bench.turns.begin()
        await asyncio.sleep(0)
        assert bench.turns.count == before, "it could append to a journal that is closed"

    on_loop(test)


def test_an_answer_is_sent_after_the_sync() -> None:
    async def test() -> None:
        bench = Bench()
        endpoint, outlet = joined(bench)
        bench.turns.begin()
        queue = bench.queue()
        endpoint.waits_for = bench.publish(queue, b"x")
        bench.turns.holding[endpoint] = None
        assert bench.journal.synced_lsn < endpoint.waits_for
        await until(lambda: not bench.turns.holding)
        assert endpoint.told[-1] == ("synced", bench.journal.synced_lsn)
        assert bench.journal.synced_lsn >= endpoint.waits_for
        assert not outlet.sent, "it was not stirred"
        await bench.close()

    on_loop(test)


def test_an_answer_whose_record_is_already_on_disk_is_released() -> None:
    async def test() -> None:
        bench = Bench()
        endpoint, _ = joined(bench)
        bench.queue()
        await bench.turns.synced()
        bench.turns.begin()
        endpoint.waits_for = bench.journal.end_lsn
        bench.turns.holding[endpoint] = None
        await until(lambda: not bench.turns.holding)
        await bench.close()

    on_loop(test)


def test_records_that_no_client_waits_for_are_written_a_little_later() -> None:
    async def test() -> None:
        bench = Bench()
        bench.turns.begin()
        bench.queue()
        await until(lambda: bench.turns.count)
        assert bench.journal.synced_lsn < bench.journal.end_lsn
        assert bench.journal.stats.batches == 0
        await until(lambda: bench.turns.idle)
        assert bench.journal.stats.batches == 1
        await bench.close()

    on_loop(test)


def test_output_that_waits_patiently_does_not_hasten_the_sync() -> None:
    async def test() -> None:
        bench = Bench()
        endpoint, _ = joined(bench)
        bench.turns.begin()
        bench.queue()
        endpoint.waits_for = bench.journal.end_lsn
        bench.turns.patient[endpoint] = None
        await until(lambda: bench.turns.count)
        assert bench.journal.stats.batches == 0
        await until(lambda: not bench.turns.patient)
        assert bench.journal.stats.batches == 1
        await bench.close()

    on_loop(test)


def test_a_record_that_a_client_waits_for_is_written_together_with_the_others() -> None:
    async def test() -> None:
        bench = Bench()
        bench.turns.begin()
        bench.publish(bench.queue(), b"x")
        lsn = bench.journal.end_lsn
        done: list[int] = []
        bench.turns.when_synced(lsn, lambda: done.append(bench.journal.synced_lsn))
        await until(lambda: done)
        assert done[0] >= lsn
        assert bench.journal.stats.batches == 1
        await bench.close()

    on_loop(test)


def test_records_that_are_appended_during_a_sync_share_the_next_one() -> None:
    async def test() -> None:
        gate = threading.Event()

        class Slow(MemoryStorage):
            def sync(self, name: str) -> None:
                gate.wait(30)
                super().sync(name)

        bench = Bench(Slow(random.Random(1)))
        bench.turns.begin()
        queue = bench.queue()
        bench.turns.when_synced(bench.journal.end_lsn, lambda: None)
        await until(lambda: bench.turns.count)
        for _ in range(10):
            bench.turns.begin()
            bench.publish(queue, b"x")
            await asyncio.sleep(0)
        gate.set()
        await bench.turns.synced()
        assert bench.journal.stats.batches == 2
        await bench.close()

    on_loop(test)


def test_clients_that_come_back_after_a_slow_sync_share_the_next_batch_with_those_that_waited() -> None:
    async def test() -> None:
        gate = threading.Event()

        class Slow(MemoryStorage):
            def write_through(self, name: str, offset: int, *parts: bytes) -> None:
                gate.wait(30)
                time.sleep(2 * SLOW_US / 1e6)  # as long as over a network
                super().write_through(name, offset, *parts)

        bench = Bench(Slow(random.Random(1)))
        queue = bench.queue()
        done: list[int] = []

        def publish(then: Callable[[], None]) -> None:
            bench.turns.begin()
            bench.turns.when_synced(bench.publish(queue, b"x" * 100) + 1, then)

        def come_back() -> None:
            loop.call_soon(publish, lambda: done.append(bench.journal.stats.batches))

        loop = asyncio.get_running_loop()
        for _ in range(FEW_RECORDS):
            publish(come_back)
        turn = bench.turns.count
        await until(lambda: bench.turns.count > turn, "the first batch is being written")
        for _ in range(FEW_RECORDS):
            publish(lambda: done.append(bench.journal.stats.batches))
        gate.set()
        await until(lambda: len(done) == 2 * FEW_RECORDS)
        assert set(done) == {2}
        await bench.close()

    on_loop(test)


def test_after_a_fast_sync_no_batch_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        bench = Bench()
        queue = bench.queue()
        for _ in range(FEW_RECORDS):
            bench.turns.begin()
            bench.publish(queue, b"x")
        await bench.turns.synced()
        await bench.close()

    asked = []

    def begin(_: Gathering, *arguments: int) -> float:
        asked.append(arguments)
        return 0.0

    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)  # no time passes while a batch is written
    monkeypatch.setattr(Gathering, "begin", begin)
    on_loop(test)
    assert not asked


def test_deadlines_run_by_themselves() -> None:
    async def test() -> None:
        bench = Bench()
        fired: list[int] = []
        bench.turns.begin()
        for delay in (20, 5):
            bench.broker.engine.deadlines.set(bench.broker.engine.now + delay, lambda delay=delay: fired.append(delay))  # type: ignore[misc]
        await until(lambda: len(fired) == 2, "the deadlines")
        assert fired == [5, 20]
        await bench.close()

    on_loop(test)


def test_an_earlier_deadline_moves_the_timer() -> None:
    async def test() -> None:
        bench = Bench()
        fired: list[str] = []
        bench.turns.begin()
        bench.broker.engine.deadlines.set(bench.broker.engine.now + 3_600_000, lambda: fired.append("late"))
        await asyncio.sleep(0.01)
        bench.turns.begin()
        bench.broker.engine.deadlines.set(bench.broker.engine.now + 5, lambda: fired.append("early"))
        await until(lambda: fired)
        assert fired == ["early"]
        await bench.close()

    on_loop(test)


def test_actions_wait_for_their_lsn_in_order() -> None:
    async def test() -> None:
        bench = Bench()
        seen: list[str] = []
        bench.turns.begin()
        queue = bench.queue()
        first = bench.publish(queue, b"x")
        second = bench.publish(queue, b"y")
        bench.turns.when_synced(second, lambda: seen.append("second"))
        bench.turns.when_synced(first, lambda: seen.append("first"))
        bench.turns.when_synced(0, lambda: seen.append("at once"))
        assert seen == ["at once"]
        await bench.turns.synced()
        assert seen == ["at once", "first", "second"]
        await bench.close()

    on_loop(test)


def test_posts_from_other_threads_come_in_a_turn() -> None:
    async def test() -> None:
        bench = Bench()
        seen: list[int] = []
        before = bench.turns.count
        thread = threading.Thread(target=bench.turns.post, args=(lambda: seen.append(bench.broker.engine.now),))
        thread.start()
        await until(lambda: bench.turns.count > before)
        thread.join()
        assert seen[0] > 0
        await bench.close()

    on_loop(test)


def test_a_lost_endpoint_is_asked_nothing_more() -> None:
    async def test() -> None:
        bench = Bench()
        endpoint, outlet = joined(bench)
        bench.turns.begin()
        bench.turns.dirty[endpoint] = bench.turns.holding[endpoint] = None
        bench.publish(bench.queue(), b"x")
        bench.turns.forget(endpoint)
        await bench.turns.synced()
        assert not outlet.sent
        assert not endpoint.told
        await bench.close()

    on_loop(test)


class Ended(BaseException):
    """Represents the end of the process."""


def die_noisily(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def exit_process(code: int) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", exit_process)
    return codes


@pytest.mark.rule("DUR-2")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_sync_ends_the_process_and_answers_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes = die_noisily(monkeypatch)

    async def test() -> FakeEndpoint:
        bench = Bench(MemoryStorage(random.Random(1), Faults(sync_fails=1.0)))
        endpoint, _ = joined(bench)
        bench.turns.begin()
        endpoint.waits_for = bench.publish(bench.queue(), b"x")
        bench.turns.holding[endpoint] = None
        await until(lambda: codes)
        await asyncio.to_thread(bench.turns._writer._thread.join)
        return endpoint

    endpoint = on_loop(test)
    assert codes == [fatal.EXIT_CODE]
    assert not endpoint.told
    assert "the journal cannot be written: " in caplog.text


def test_a_fault_in_the_broker_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes = die_noisily(monkeypatch)

    async def test() -> None:
        bench = Bench()

        def fault() -> None:
            raise KeyError("broken")

        bench.turns.after.append(fault)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # which gets `Ended` here
        bench.turns.begin()
        await until(lambda: codes)
        bench.turns.stop()

    on_loop(test)
    assert codes == [fatal.EXIT_CODE]
    assert "internal error in the broker; the broker stops" in caplog.text
    assert "KeyError" in caplog.text


@pytest.mark.rule("REPL-6")
def test_a_leader_that_may_be_deposed_delivers_nothing_until_it_knows_that_it_leads() -> None:
    async def test() -> None:
        silent = True
        bench = Bench(withheld=lambda: silent)
        await until(lambda: bench.turns.idle)
        bench.turns.begin()
        await until(lambda: bench.broker.engine.turn.withheld)
        silent = False
        await until(lambda: not bench.broker.engine.turn.withheld)
        await bench.close()

    on_loop(test)
