"""A connection's channels, its closing, blocking, and timers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.budget import CHANNEL, DELETED
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import (
    HEARTBEAT,
    body_frames,
    frame,
    header_frame,
    method_frame,
)
from escrowmq.wire.amqp091.handshake import State
from escrowmq.wire.amqp091.properties import Properties
from tests.harness.client import SimClient, connect
from tests.unit.wire.amqp091.clients import (
    PERSISTENT,
    Server,
    bodies,
    fails_channel,
    fails_connection,
    message,
    opening,
    pair,
    server,
)

SMALL = spec.ConnectionTuneOk(0, 4096, 0)
TRANSIENT = Properties(content_type="text/plain").encode()
PUBLISH = spec.BasicPublish("", "q")


class TestChannels:
    def test_channels_are_limited_to_the_negotiated_number(self) -> None:
        made = server(channels=5)
        client = SimClient(made)
        for number in range(1, 6):
            client.open_channel(number)
        client.send(6, spec.ChannelOpen())
        fails_connection(client, codes.NOT_ALLOWED, "channel_max (5)")

    def test_the_client_chooses_channel_numbers(self) -> None:
        client = SimClient(server(channels=2))
        for number in (65535, 300):
            client.open_channel(number)
        client.call(300, spec.ChannelClose(200, "bye", 0, 0), spec.ChannelCloseOk)
        client.open_channel(7)
        client.send(8, spec.ChannelOpen())
        fails_connection(client, codes.NOT_ALLOWED, "channels opened (2)")

    @pytest.mark.rule("DUR-1")
    def test_a_channel_number_may_be_reused_while_its_last_confirms_wait_for_the_disk(self) -> None:
        made, client = pair()
        client.send(1, spec.ConfirmSelect())
        client.expect(1, spec.ConfirmSelectOk)
        client.declare(1, "q")
        client.publish(1, "q", b"a", b"b", disk=False)
        client.send(1, spec.ChannelClose(200, "bye", 0, 0), spec.ChannelOpen(), disk=False)
        assert not client.inbox
        made.run_disk()
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(2, True)
        client.expect(1, spec.ChannelCloseOk)
        client.expect(1, spec.ChannelOpenOk)
        client.publish(1, "q", b"c")
        assert not client.inbox, "the new channel is not in confirm mode"
        assert bodies(made) == [b"a", b"b", b"c"]

    def test_closing_while_the_server_is_closing(self) -> None:
        _, client = pair()
        client.send(1, spec.BasicAck(5), spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk(), spec.ChannelOpen())
        client.expect(1, spec.ChannelClose)
        client.expect(1, spec.ChannelCloseOk)
        client.expect(1, spec.ChannelOpenOk)

    def test_an_unexpected_close_ok_is_ignored(self) -> None:
        _, client = pair()
        client.send(1, spec.ChannelCloseOk(), spec.BasicCancelOk("x"), spec.ChannelFlowOk(True))
        client.send(7, spec.ChannelCloseOk())
        client.declare(1, "q")


class TestClosing:
    @pytest.mark.rule("DUR-1")
    def test_close_ok_follows_all_pending_answers(self) -> None:
        made, client = pair()
        client.send(1, spec.ConfirmSelect())
        client.expect(1, spec.ConfirmSelectOk)
        client.open_channel(2)
        client.declare(2, "q")
        client.publish(1, "q", b"a", disk=False)
        client.send(2, spec.QueueDeclare("other", durable=True), disk=False)
        client.send(0, spec.ConnectionClose(200, "bye", 0, 0), disk=False)
        assert not client.inbox
        assert not client.closed
        made.run_disk()
        client.collect()
        kinds = [said.method.NAME for said in client.inbox]
        assert kinds[-1] == "connection.close-ok"
        assert set(kinds[:-1]) == {"basic.ack", "queue.declare-ok"}

    @pytest.mark.rule("EXC-1")
    @pytest.mark.rule("TX-10")
    @pytest.mark.parametrize("how", ["lost", "closed", "failed", "silent"])
    def test_all_unacknowledged_messages_are_requeued(self, how: str) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.declare(1, "mine", durable=False, exclusive=True)
        client.publish(1, "q", b"a", b"b", b"c")
        client.open_channel(2, mode="tx")
        client.send(2, spec.BasicConsume("q", "t"))
        client.send(2, spec.BasicAck(1))
        client.publish(2, "q", b"in tx")
        queue = made.broker.directory.vhost("/").queue("q")
        assert (queue.ready, queue.unsettled) == (0, 3)
        if how == "lost":
            client.lose()
        elif how == "closed":
            client.send(0, spec.ConnectionClose(200, "", 0, 0))
        elif how == "failed":
            client.send(0, spec.ChannelOpen())
        else:
            client.port.endpoint.heartbeat = 1
            client.port.endpoint.tick(10_000, 5_000, 0)
            made.end_turn()
        made.run_disk()
        assert bodies(made) == [b"a", b"b", b"c"]
        assert (queue.unsettled, len(queue.consumers)) == (0, 0)
        assert "mine" not in made.broker.directory.vhost("/").queues
        assert not made.broker.engine.holders

    def test_a_client_that_does_not_answer_the_close_is_disconnected(self) -> None:
        made, client = pair()
        endpoint = client.port.endpoint
        client.send(0, spec.ChannelOpen())
        client.expect(0, spec.ConnectionClose)
        endpoint.tick(1000, 0, 0)
        endpoint.tick(5900, 0, 0)
        made.end_turn()
        assert not client.closed
        endpoint.tick(6100, 0, 0)
        made.end_turn()
        assert client.closed

    def test_both_sides_may_close_at_the_same_time(self) -> None:
        _, client = pair()
        client.send(0, spec.ChannelOpen(), disk=False)
        client.send(0, spec.ConnectionClose(200, "", 0, 0))
        client.expect(0, spec.ConnectionClose)
        client.expect(0, spec.ConnectionCloseOk)
        client.send(0, spec.ConnectionCloseOk())
        assert client.closed

    def test_other_methods_are_ignored_while_closing(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.send(0, spec.ChannelOpen(), disk=False)
        client.send_bytes(b"".join(message(1, b"x")) + method_frame(5, spec.ChannelOpen()) + HEARTBEAT)
        client.send_bytes(frame(codes.FRAME_BODY, 5, b"x"))
        fails_connection(client, codes.COMMAND_INVALID)
        assert not client.inbox
        assert bodies(made) == []

    @pytest.mark.parametrize("cut", [1, 7, 8, 30])
    @pytest.mark.parametrize("fault", [b"", method_frame(0, spec.ChannelOpen())], ids=["shut", "fault"])
    def test_close_ok_is_found_behind_frames_in_flight(self, cut: int, fault: bytes) -> None:
        made, client = pair()
        client.declare(1, "q")
        late = b"".join(message(1, b"x" * 100))
        client.send_bytes(fault + late + late[:cut])
        if not fault:
            client.port.endpoint.shut("the broker is shutting down")
            made.end_turn()
        client.expect(0, spec.ConnectionClose)
        client.send_bytes(late[cut:])
        assert client.port.endpoint.state is State.CLOSING
        client.send_bytes(late + method_frame(0, spec.ConnectionCloseOk()))
        assert client.closed
        assert bodies(made) == ([] if fault else [b"x" * 100])

    def test_shutdown_closes_connections_with_320(self) -> None:
        made, client = pair()
        client.port.endpoint.shut("the broker is shutting down")
        made.end_turn()
        fails_connection(client, codes.CONNECTION_FORCED, "shutting down")
        early = connect(made)
        early.endpoint.shut("the broker is shutting down")
        made.end_turn()
        assert early.closed
        client.port.endpoint.shut("again")


class TestTime:
    def test_heartbeats_are_sent_and_expected(self) -> None:
        made = server()
        port = connect(made)
        made.receive(port, opening(spec.ConnectionTuneOk(0, 0, 10)))
        made.end_turn()
        said = len(port.sent)
        port.endpoint.tick(0, 19_999, 4_999)
        made.end_turn()
        assert len(port.sent) == said
        port.endpoint.tick(0, 20_000, 5_000)
        made.end_turn()
        assert bytes(port.sent[said:]) == HEARTBEAT
        port.endpoint.tick(0, 20_001, 0)
        made.end_turn()
        assert port.closed

    def test_heartbeats_and_blocked_notices_do_not_wait_for_the_disk(self) -> None:
        made, client = pair()
        endpoint = client.port.endpoint
        endpoint.heartbeat = 10
        client.send(1, spec.QueueDeclare("q", durable=True), disk=False)
        assert not client.inbox
        client.port.sent.clear()
        endpoint.tick(0, 0, 5_000)
        endpoint.block("the disk is slow")
        made.end_turn()
        assert bytes(client.port.sent) == HEARTBEAT + method_frame(0, spec.ConnectionBlocked("the disk is slow"))

    def test_without_heartbeats_an_idle_connection_stays_open(self) -> None:
        made, client = pair()
        client.port.endpoint.tick(10**9, 10**9, 10**9)
        made.end_turn()
        assert not client.closed


class TestBlocking:
    def test_only_clients_with_the_capability_get_connection_blocked(self) -> None:
        made, client = pair()
        deaf = connect(made)
        made.receive(deaf, opening())
        made.end_turn()
        said = len(deaf.sent)
        for endpoint in (client.port.endpoint, deaf.endpoint):
            endpoint.block("low on memory")
            endpoint.block("")
        made.end_turn()
        assert client.expect(0, spec.ConnectionBlocked).reason == "low on memory"
        client.expect(0, spec.ConnectionUnblocked)
        assert len(deaf.sent) == said

    def test_a_new_client_gets_connection_blocked_when_it_is_open(self) -> None:
        made, client = pair()
        endpoint = client.port.endpoint
        endpoint.state = State.OPEN
        endpoint.block("low on disk")
        assert not client.inbox
        client.send(0, spec.ConnectionOpen("/"))
        client.expect(0, spec.ConnectionOpenOk)
        assert client.expect(0, spec.ConnectionBlocked).reason == "low on disk"
        del made

    def test_the_first_publish_is_reported_to_the_server(self) -> None:
        made, client = pair()
        assert made.publishers == []
        client.publish(1, "nowhere", b"a", b"b")
        assert made.publishers == [client.port.endpoint]

    def test_a_blocked_client_is_read_up_to_its_next_publish(self) -> None:
        made, client = pair()
        endpoint = client.port.endpoint
        client.declare(1, "q")
        client.publish(1, "q", b"before")
        endpoint.block("low on memory")
        made.end_turn()
        client.expect(0, spec.ConnectionBlocked)
        client.send(1, spec.QueueDeclare("other", exclusive=True))
        client.expect(1, spec.QueueDeclareOk)
        assert made.waiters == []
        client.publish(1, "q", b"a", b"b")
        client.send(1, spec.QueueDeclare("behind"))
        assert made.waiters
        assert set(made.waiters) == {endpoint}
        queue = made.broker.directory.vhost("/").queue("q")
        assert queue.ready == 1
        assert "behind" not in made.broker.directory.vhost("/").queues
        endpoint.block("")
        made.receive(client.port, b"")
        made.end_turn()
        assert queue.ready == 3
        assert "behind" in made.broker.directory.vhost("/").queues
        made.waiters.clear()
        client.publish(1, "q", b"c")
        assert queue.ready == 4
        assert not made.waiters

    @pytest.mark.parametrize("pieces", [1, 7, 50])
    @pytest.mark.parametrize("size", [10, 9000], ids=["one frame", "several frames"])
    def test_blocking_loses_and_reorders_nothing_for_any_segmentation(self, pieces: int, size: int) -> None:
        made, client = pair()
        endpoint = client.port.endpoint
        client.declare(1, "q")
        sent = [b"%03d" % i * (size // 3) for i in range(20)]
        stream = b"".join(part for body in sent for part in message(1, body))
        step = len(stream) // pieces + 1
        for at in range(0, len(stream), step):
            endpoint.block("low on disk" if at // step % 3 == 1 else "")
            made.receive(client.port, stream[at : at + step])
            made.end_turn()
        endpoint.block("")
        made.receive(client.port, b"")
        made.end_turn()
        assert bodies(made) == sent

    def test_the_first_publish_of_a_blocked_connection_waits_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made, client = pair()
        monkeypatch.setattr(made, "publishing", lambda endpoint: endpoint.block("low on disk"))
        client.declare(1, "q")
        client.publish(1, "q", b"a")
        assert made.broker.directory.vhost("/").queue("q").ready == 0
        assert made.waiters
        client.expect(0, spec.ConnectionBlocked)

    def test_a_blocked_client_can_close(self) -> None:
        made, client = pair()
        client.port.endpoint.block("low on memory")
        made.end_turn()
        client.expect(0, spec.ConnectionBlocked)
        client.send(0, spec.ConnectionClose(200, "bye"))
        client.expect(0, spec.ConnectionCloseOk)
        assert client.port.endpoint.state is State.CLOSING

    def test_publishes_held_back_from_a_lost_client_are_dropped(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.port.endpoint.block("low on memory")
        client.publish(1, "q", b"a")
        made.lose(client.port)
        made.end_turn()
        assert made.broker.directory.vhost("/").queue("q").ready == 0

    def test_a_client_that_reads_too_slowly_gets_no_deliveries(self) -> None:
        made, client = pair(outbox=10_000)
        client.declare(1, "q")
        client.publish(1, "q", *[b"x" * 1000] * 50)
        client.port.endpoint.congested(20_000)
        client.send(1, spec.BasicConsume("q", "t", no_ack=True))
        client.expect(1, spec.BasicConsumeOk)
        assert not client.inbox
        client.port.endpoint.congested(0)
        made.end_turn()
        assert len(client.deliveries()) == 50

    def test_waiting_answers_to_a_client_are_bounded(self) -> None:
        _, client = pair(outbox=10_000)
        client.declare(1, "q")
        client.publish(1, "q", *[b"x" * 1000] * 200)
        endpoint = client.port.endpoint
        endpoint.receive(method_frame(1, spec.BasicGet("q", no_ack=True)) * 201)
        longest = 0
        got = 0
        while data := b"".join(endpoint.output()):
            longest = max(longest, len(data))
            got += data.count(b"x" * 1000)
        assert got == 200
        assert longest < 50_000


def test_update_secret_changes_the_secret() -> None:
    made, client = pair()
    client.call(0, spec.ConnectionUpdateSecret(b"new", "because"), spec.ConnectionUpdateSecretOk)
    assert made.secrets == [("guest", b"new")]


def test_an_incomplete_message_makes_a_connection_a_publisher() -> None:
    """An alarm then stops the connection. Otherwise a client could fill memory with one incomplete message per
    channel.
    """
    made, client = pair()
    start = method_frame(1, PUBLISH) + header_frame(1, PERSISTENT, 100_000_000) + body_frames(1, b"x" * 1000, 0)
    made.receive(client.port, start)
    assert made.publishers == [client.port.endpoint]


def test_listed_properties_contain_no_secrets() -> None:
    made, client = pair()
    del made
    shown = client.port.endpoint.describe()
    assert (shown["user"], shown["vhost"], shown["state"], shown["channels"]) == ("guest", "/", "running", 1)
    assert "password" not in str(shown).lower()


class TestFaults:
    def test_errors_that_close_a_channel_or_connection_are_reported_to_the_server(self) -> None:
        made, client = pair(message_size=10)
        client.publish(1, "q", b"more than ten")
        assert made.faults[0][1].startswith("channel 1: ")
        assert "10" in made.faults[0][1]
        client.send(0, spec.QueueDeclare("q"))
        assert [code for code, _ in made.faults] == [406, 503]

    def test_closing_by_the_server_is_not_reported_as_an_error(self) -> None:
        made, client = pair()
        client.port.endpoint.shut("closing time")
        assert made.faults == []


class TestLargeBodies:
    """Body frames of more than 32 KiB are copied into the content as they arrive."""

    BODY = bytes(i % 251 for i in range(200_000))

    def talk(self) -> tuple[Server, SimClient, bytes]:
        made, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", b"first")  # make the connection a known publisher
        head = method_frame(1, PUBLISH) + header_frame(1, PERSISTENT, len(self.BODY))
        return made, client, head + body_frames(1, self.BODY, 131_072)

    @pytest.mark.parametrize("piece", [100, 8191, 65_536, 131_072, 200_100])
    def test_any_segmentation_gives_the_same_content(self, piece: int) -> None:
        made, client, large = self.talk()
        stream = large + b"".join(message(1, b"small")) + large
        for at in range(0, len(stream), piece):
            made.receive(client.port, stream[at : at + piece])
        assert bodies(made) == [b"first", self.BODY, b"small", self.BODY]

    @pytest.mark.parametrize("last", [1, 2, 60, 61, 62, 68_000, 68_946, 68_947])
    def test_the_frame_end_may_arrive_alone(self, last: int) -> None:
        made, client, large = self.talk()
        made.receive(client.port, large[:-last])
        made.receive(client.port, large[-last:])
        assert bodies(made) == [b"first", self.BODY]

    def test_a_partial_body_waits_when_publishers_are_blocked(self) -> None:
        made, client, large = self.talk()
        endpoint = client.port.endpoint
        made.receive(client.port, large[:50_000])
        endpoint.block("low on memory")
        made.receive(client.port, large[50_000:150_000])
        made.receive(client.port, large[150_000:])
        assert made.waiters == [endpoint, endpoint]
        assert bodies(made) == [b"first"]
        endpoint.block("")
        endpoint.receive(b"")
        assert bodies(made) == [b"first", self.BODY]

    def test_the_rest_of_a_body_for_a_closed_channel_is_skipped(self) -> None:
        made, client, large = self.talk()
        made.receive(client.port, large[:50_000])
        client.port.endpoint.channels[1].fail(codes.INTERNAL_ERROR, "gone")
        client.send_bytes(large[50_000:] + b"".join(message(1, b"late")))
        fails_channel(client, 1, codes.INTERNAL_ERROR)
        client.open_channel(1)
        client.publish(1, "q", b"next")
        assert bodies(made) == [b"first", b"next"]

    def test_a_frame_without_its_end_closes_the_connection(self) -> None:
        made, client, large = self.talk()
        made.receive(client.port, large[:50_000])
        client.send_bytes(large[50_000:-1] + b"\x00")
        fails_connection(client, codes.FRAME_ERROR, "0xce")

    def test_close_ok_is_found_behind_the_rest_of_a_body(self) -> None:
        made, client, large = self.talk()
        made.receive(client.port, large[:50_000])
        client.port.endpoint.shut("closing time")
        client.send_bytes(large[50_000:] + method_frame(0, spec.ConnectionCloseOk()))
        assert client.port.closed

    def test_frames_of_other_channels_may_interrupt_a_body(self) -> None:
        made, client, large = self.talk()
        client.open_channel(2)
        cut = len(large) - (len(self.BODY) - 131_064) - 8
        made.receive(client.port, large[:60_000])
        made.receive(client.port, large[60_000:cut] + b"".join(message(2, b"between")) + large[cut:])
        assert bodies(made) == [b"first", b"between", self.BODY]


MANY = 1500
ONE_TURN = 400
"""More units of work than one turn spends on deletions."""


def with_consumers(queue: str = "q") -> tuple[Server, SimClient]:
    made, client = pair()
    client.declare(1, queue)
    client.send(1, *(spec.BasicConsume(queue, f"{number}", no_wait=True) for number in range(MANY)))
    while made.broker.engine.turn.unfinished:
        made.end_turn()
    return made, client


def turns_until(made: Server, left: Callable[[], int]) -> list[int]:
    """End turns until nothing is left. Return by how much it became less in each of them."""
    steps = []
    while (before := left()) > 0:
        made.end_one_turn()
        steps.append(before - left())
        assert len(steps) < MANY, "the rest is not done"
    made.run_disk()
    return steps


@pytest.mark.rule("FAIR-1")
class TestManyObjects:
    def test_the_consumers_of_a_lost_connection_are_detached_in_several_turns_and_get_nothing(self) -> None:
        made, client = with_consumers()
        queue = made.broker.directory.vhost("/").queue("q")
        other = SimClient(made)
        other.open_channel(1)
        made.lose(client.port)
        assert queue.consumers
        made.receive(other.port, b"".join(message(1, b"x") + message(1, b"y")))
        steps = turns_until(made, lambda: len(queue.consumers))
        assert len(steps) > 1
        assert max(steps) <= ONE_TURN
        assert bodies(made) == [b"x", b"y"]

    def test_the_exclusive_queues_of_a_lost_connection_are_deleted_in_several_turns(self) -> None:
        made, client = pair()
        client.send(1, *(spec.QueueDeclare(f"{number}", exclusive=True, no_wait=True) for number in range(MANY)))
        queues = made.broker.directory.vhost("/").queues
        assert len(queues) == MANY
        made.lose(client.port)
        steps = turns_until(made, lambda: len(queues))
        assert len(steps) > 1
        assert max(steps) <= ONE_TURN // DELETED

    def test_the_answer_to_close_comes_when_the_last_exclusive_queue_is_deleted(self) -> None:
        made, client = pair()
        client.send(1, *(spec.QueueDeclare(f"{number}", exclusive=True, no_wait=True) for number in range(MANY)))
        client.send(0, spec.ConnectionClose(200, "bye", 0, 0))
        client.collect()
        queues = made.broker.directory.vhost("/").queues
        assert queues
        assert not client.inbox
        turns_until(made, lambda: len(queues))
        client.expect(0, spec.ConnectionCloseOk)
        client.send(0, spec.ConnectionClose(200, "again", 0, 0))
        client.expect(0, spec.ConnectionCloseOk)

    def test_a_client_that_is_lost_while_it_waits_for_the_answer_to_close_gets_none(self) -> None:
        made, client = pair()
        client.send(1, *(spec.QueueDeclare(f"{number}", exclusive=True, no_wait=True) for number in range(MANY)))
        client.send(0, spec.ConnectionClose(200, "bye", 0, 0))
        made.lose(client.port)
        turns_until(made, lambda: len(made.broker.directory.vhost("/").queues))
        client.collect()
        assert not client.inbox

    def test_the_answer_to_channel_close_comes_when_the_last_consumer_is_detached(self) -> None:
        made, client = with_consumers()
        queue = made.broker.directory.vhost("/").queue("q")
        client.send(1, spec.ChannelClose(200, "bye", 0, 0))
        client.publish(1, "q", b"ignored, since the channel is closing")
        client.collect()
        assert not client.inbox
        steps = turns_until(made, lambda: len(queue.consumers))
        assert max(steps) <= ONE_TURN
        client.expect(1, spec.ChannelCloseOk)
        client.open_channel(1)
        assert bodies(made) == []

    def test_deliveries_of_a_channel_with_many_consumers_return(self) -> None:
        made, client = with_consumers()
        client.open_channel(2)
        client.publish(2, "q", *(b"%d" % number for number in range(10)))
        queue = made.broker.directory.vhost("/").queue("q")
        assert queue.unsettled == 10
        made.lose(client.port)
        turns_until(made, lambda: len(queue.consumers))
        turns_until(made, lambda: queue.unsettled)
        assert bodies(made) == [b"%d" % number for number in range(10)]

    def test_the_channels_of_a_lost_connection_end_in_several_turns(self) -> None:
        made, client = pair()
        for number in range(2, 300):
            client.open_channel(number)
        channels = made.broker.engine.channels
        made.lose(client.port)
        steps = turns_until(made, lambda: channels["guest"])
        assert max(steps) <= ONE_TURN // CHANNEL
        assert "guest" not in channels

    def test_a_deleted_queue_cancels_its_consumers_in_several_turns_after_the_answer(self) -> None:
        made, client = with_consumers()
        queue = made.broker.directory.vhost("/").queue("q")
        client.send(1, spec.QueueDelete("q"))
        while queue.consumers:
            made.end_one_turn()
        made.end_turn()
        made.run_disk()
        client.expect(1, spec.QueueDeleteOk)
        assert {client.expect(1, spec.BasicCancel).consumer_tag for _ in range(MANY)} == set(map(str, range(MANY)))
