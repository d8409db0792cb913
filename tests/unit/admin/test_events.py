"""Live events are numbered, bounded, and known to belong to one run of the broker."""

from __future__ import annotations

from typing import Any

from escrowmq.admin.events import KEPT, EventAdmin
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import server


class Bench:
    def __init__(self) -> None:
        self.process = FakeProcess(server())
        self.live = self.process.live_events
        self.operations = EventAdmin(self.process).operations

    def ask(self, after: int | None, start: str = "") -> Any:
        return perform(self.operations, "event.list", start=start or self.live.start, after=after)


def test_a_listener_begins_with_the_present_and_then_gets_each_event_once() -> None:
    bench = Bench()
    bench.live.note("BEFORE")
    first = bench.ask(None)
    assert (first["events"], first["last"], first["restarted"], first["missed"]) == ([], 1, False, 0)
    bench.live.note("ALARM_RAISED", alarm="disk")
    bench.live.note("ALARM_CLEARED", alarm="disk")
    then = bench.ask(first["last"])
    assert [(each["number"], each["name"], each["fields"]) for each in then["events"]] == [
        (2, "ALARM_RAISED", {"alarm": "disk"}),
        (3, "ALARM_CLEARED", {"alarm": "disk"}),
    ]
    assert then["events"][0]["time_ms"] == bench.process.broker.engine.now
    assert then["synced_lsn"] == bench.process.synced_lsn
    assert bench.ask(then["last"])["events"] == []


def test_events_that_are_no_longer_kept_are_counted() -> None:
    bench = Bench()
    for number in range(KEPT + 5):
        bench.live.note("X", number=number)
    found = bench.ask(2)
    assert (found["missed"], len(found["events"]), found["events"][0]["number"]) == (3, KEPT, 6)
    assert bench.ask(KEPT)["missed"] == 0


def test_a_listener_of_a_former_run_gets_all_events_of_this_one() -> None:
    bench = Bench()
    bench.live.note("X")
    found = bench.ask(700, start="0123abcd")
    assert (found["restarted"], [each["number"] for each in found["events"]], found["missed"]) == (True, [1], 0)
    assert bench.ask(900)["events"] == []  # a number of the future
