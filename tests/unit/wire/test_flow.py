"""Flow control: waiting for a client to read, and for the server to have memory and disk."""

from __future__ import annotations

from typing import cast

from escrowmq.wire.endpoint import Endpoint, Host
from escrowmq.wire.flow import CROWD, OutputFlow, PublishGate
from escrowmq.wire.outbox import Outbox
from tests.unit.wire.test_outbox import Log

LIMIT = 100


class Receiver:
    """Counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


class Site:
    """An outbox with its flow control."""

    def __init__(self) -> None:
        self.outbox = Outbox(Log())
        self.reads = 0
        self.flow = OutputFlow(self.outbox, LIMIT, self.read_on)

    def read_on(self) -> None:
        self.reads += 1


class TestOutputFlow:
    def test_after_the_end_of_deliveries_nothing_is_written_or_woken(self) -> None:
        site, before, after = Site(), Receiver(), Receiver()
        site.flow.stall(before)
        site.flow.end_deliveries()
        site.flow.stall(after)
        assert not site.flow.writable
        site.flow.congested(0)
        assert before.woken == after.woken == 0

    def test_a_crowded_connection_is_read_again_after_the_end_of_deliveries_but_not_after_its_loss(self) -> None:
        for lost in (False, True):
            site = Site()
            site.flow.congested(CROWD * LIMIT + 1)
            assert site.flow.crowded()
            (site.flow.end if lost else site.flow.end_deliveries)()
            site.flow.congested(0)
            assert site.reads == (0 if lost else 1)

    def test_bytes_in_the_outbox_and_in_the_socket_count_together(self) -> None:
        site = Site()
        site.outbox.put(1, bytes(60))
        assert site.flow.writable
        site.flow.congested(39)
        assert site.flow.writable
        site.flow.congested(40)
        assert not site.flow.writable

    def test_stalled_receivers_are_woken_once_when_there_is_room(self) -> None:
        site, receiver = Site(), Receiver()
        site.flow.congested(LIMIT)
        site.flow.stall(receiver)
        site.flow.stall(receiver)
        site.flow.relax()
        assert receiver.woken == 0
        site.flow.congested(LIMIT - 1)
        site.flow.relax()
        assert receiver.woken == 1

    def test_a_closed_channel_is_not_kept_until_there_is_room(self) -> None:
        site, receiver = Site(), Receiver()
        site.flow.congested(LIMIT)
        site.flow.stall(receiver)
        site.flow.forget(receiver)
        site.flow.forget(receiver)
        site.flow.congested(0)
        assert receiver.woken == 0

    def test_a_congested_connection_resumes_reading_when_there_is_room(self) -> None:
        site = Site()
        site.outbox.put(1, bytes(CROWD * LIMIT))
        assert not site.flow.crowded()
        site.outbox.put(1, b"!")
        assert site.flow.crowded()
        site.flow.relax()
        assert (site.flow.is_crowded, site.reads) == (True, 0)
        site.outbox.take()
        site.flow.relax()
        site.flow.relax()
        assert (site.flow.is_crowded, site.reads) == (False, 1)


class Server:
    """The part of the server that the gate uses."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def publishing(self, endpoint: object) -> None:
        self.told.append("publishing")

    def waiting(self, endpoint: object) -> None:
        self.told.append("waiting")


def gate() -> tuple[Server, PublishGate]:
    server = Server()
    return server, PublishGate(cast("Host", server), cast("Endpoint", object()))


class TestPublishGate:
    def test_only_the_first_publish_is_announced(self) -> None:
        server, made = gate()
        assert made.shut
        assert not made.keeps_back()
        assert (made.shut, server.told) == (False, ["publishing"])

    def test_a_blocked_connection_holds_publishes_back_until_it_is_unblocked(self) -> None:
        server, made = gate()
        made.keeps_back()
        made.block("low on memory")
        assert made.keeps_back()
        assert made.keeps_back()
        made.block("")
        assert not made.keeps_back()
        assert not made.shut
        assert server.told == ["publishing", "waiting", "waiting"]

    def test_a_connection_that_is_blocked_when_announced_waits_immediately(self) -> None:
        server, made = gate()
        made.block("low on disk")
        assert made.keeps_back()
        assert server.told == ["publishing", "waiting"]
