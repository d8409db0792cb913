"""The blocking face's connection: dialling several URLs, reconnecting, time limits, threads, closing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from escrowmq import amqp10
from escrowmq.amqp10 import Backoff, ConnectionLost, ConnectionRefused, Message, OperationTimeout, UsageError
from tests.harness.amqp10_broker import Cut, ResumingBroker
from tests.ports import reserve_port

FAST = Backoff(0.001, 0.01)


@pytest.fixture
def broker() -> Iterator[ResumingBroker]:
    broker = ResumingBroker()
    yield broker
    broker.close()


def cut_at(broker: ResumingBroker, kind: str, direction: str = "in") -> None:
    """Drop the connection at the next performative of this kind, once."""

    def on_frame(where: str, performative: object) -> None:
        if where == direction and type(performative).__name__ == kind:
            broker.on_frame = lambda *_: None
            raise Cut

    broker.on_frame = on_frame


def test_messages_are_sent_and_received(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url) as connection:
        assert connection.is_open
        sender, receiver = connection.sender("q"), connection.receiver("q")
        assert sender.send(Message("one")).accepted
        assert sender.send_many(Message(number) for number in range(5000)) == 5000
        first = receiver.receive()
        assert first.body == "one"
        first.accept()
        found: list[int] = []
        while len(found) < 5000:
            deliveries = receiver.receive_many()
            found += [delivery.body for delivery in deliveries]
            receiver.accept(deliveries)
        assert found == list(range(5000))
        assert receiver.receive_many(timeout=0.01) == []
    assert not connection.is_open


def test_posted_messages_have_outcomes_after_a_flush(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url) as connection:
        sender = connection.sender("q")
        deliveries = [sender.post(Message(number)) for number in range(10)]
        sender.flush()
        assert all(delivery.accepted for delivery in deliveries)
        assert sender.unsettled == []


def test_in_mode_second_both_sides_settle(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url) as connection:
        connection.sender("q", mode="second").send(Message("x"))
        receiver = connection.receiver("q", mode="second")
        delivery = receiver.receive()
        delivery.accept()
        receiver.wait_settled([delivery])
        assert delivery.settled


def test_the_next_url_is_used_if_the_first_does_not_answer(broker: ResumingBroker) -> None:
    dead = f"amqp://127.0.0.1:{reserve_port(broker)}"
    with amqp10.connect([dead, broker.url], reconnect=False) as connection:
        assert str(broker.port) in repr(connection)
    with pytest.raises(ConnectionLost, match="2 attempts to connect"):
        amqp10.connect([dead, dead + "/x"], reconnect=False)


def test_a_call_goes_on_after_a_reconnection(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url, reconnect=FAST) as connection:
        sender = connection.sender("q", mode="second")
        cut_at(broker, "Disposition", "out")  # the broker has the message, and the outcome is lost
        assert sender.send(Message("x")).accepted
        assert len(broker.queue("q")) == 1


def test_without_reconnection_the_call_fails(broker: ResumingBroker) -> None:
    connection = amqp10.connect(broker.url, reconnect=False)
    sender = connection.sender("q")
    cut_at(broker, "Transfer")
    with pytest.raises(ConnectionLost, match="closed the connection"):
        sender.send(Message("x"))
    assert not connection.is_open
    connection.close()


def test_a_silent_peer_meets_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}?connection_timeout=0.05"
        with pytest.raises(ConnectionLost, match=r"no login within 0\.05 s"):
            amqp10.connect(url, reconnect=False)


def test_an_operation_names_what_it_waited_for(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url) as connection:
        receiver = connection.receiver("q", name="in")
        with pytest.raises(OperationTimeout, match=r"waited 0.01 s for a message on link in \(q\)"):
            receiver.receive(timeout=0.01)


def test_a_closed_connection_says_so(broker: ResumingBroker) -> None:
    connection = amqp10.connect(broker.url)
    sender = connection.sender("q")
    connection.close()
    connection.close()
    with pytest.raises(UsageError, match="is closed"):
        sender.send(Message("x"))


def test_heartbeats_do_not_disturb_other_calls(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url) as connection:
        sender = connection.sender("q")
        done = threading.Event()

        def beat() -> None:
            while not done.is_set():
                connection.process()

        thread = threading.Thread(target=beat)
        thread.start()
        for number in range(50):
            sender.send(Message(number))
        done.set()
        thread.join()
    assert len(broker.queue("q")) == 50


def test_a_refused_connection_is_reported_as_such(broker: ResumingBroker) -> None:
    broker.refuses = True
    for reconnect in (True, False, FAST):
        with pytest.raises(ConnectionRefused, match="refused the connection: amqp:not-allowed: no such virtual host"):
            amqp10.connect(broker.url, reconnect=reconnect)


def test_a_connection_that_is_refused_at_every_reconnection_fails(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url, reconnect=FAST) as connection:
        sender = connection.sender("q")
        broker.refuses = True
        cut_at(broker, "Transfer")
        with pytest.raises(ConnectionRefused, match="refused the connection"):
            sender.send(Message("x"))


def test_only_messages_can_be_sent(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url) as connection:
        sender = connection.sender("q")
        with pytest.raises(UsageError, match="expected a Message, not str"):
            sender.send("text")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="expected a Message, not str"):
            sender.post("text")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="expected a Message, not str"):
            sender.send_many([Message("x"), "text"])  # type: ignore[list-item]
        sender.flush()
        assert sender.send(Message("x")).accepted
    assert len(broker.queue("q")) == 1


def test_a_connection_shows_its_virtual_host_as_in_a_url(broker: ResumingBroker) -> None:
    with amqp10.connect(broker.url + "/shop%2F1") as connection:
        assert repr(connection) == f"<Connection to 127.0.0.1:{broker.port}/shop%2F1, open>"
