"""python-qpid-proton: AMQP 1.0 by an independent implementation in C, unmodified. `make proton` installs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker import BrokerProcess
from tests.interop.queues import declare_full

proton: Any = pytest.importorskip("proton", reason="make proton")
handlers: Any = pytest.importorskip("proton.handlers")
reactor: Any = pytest.importorskip("proton.reactor")
utils: Any = pytest.importorskip("proton.utils")

if TYPE_CHECKING:
    Connection = Any

pytestmark = pytest.mark.interop
COUNT = 500


def url(broker: BrokerProcess) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}"


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    made = utils.BlockingConnection(url(broker), timeout=20, allowed_mechs="PLAIN")
    yield made
    made.close()


def test_messages_go_there_and_back(connection: Connection, name: str) -> None:
    sender, receiver = connection.create_sender(name), connection.create_receiver(name, credit=10)
    for i in range(20):
        sent = proton.Message(
            body={"number": i, "list": [1, "two", None]},
            id=i,
            correlation_id="c",
            reply_to="r",
            subject="s",
            durable=True,
            priority=7,
            properties={"key": "value"},
            content_type="text/plain",
        )
        assert sender.send(sent).remote_state == proton.Delivery.ACCEPTED
        got = receiver.receive()
        assert (got.body, got.id, got.correlation_id, got.reply_to) == (sent.body, i, "c", "r")
        assert (got.durable, got.priority, got.properties, got.subject) == (True, 7, {"key": "value"}, "s")
        assert (got.first_acquirer, got.delivery_count) == (True, 0)
        receiver.accept()


@pytest.mark.parametrize("size", [0, 100_000, 3_000_000])
def test_large_messages_go_in_several_frames(connection: Connection, name: str, size: int) -> None:
    sender, receiver = connection.create_sender(name), connection.create_receiver(name)
    body = bytes(i % 251 for i in range(1000)) * (size // 1000)
    sender.send(proton.Message(body=body))
    assert receiver.receive().body == body
    receiver.accept()


def test_released_and_modified_messages_return(connection: Connection, name: str) -> None:
    sender, receiver = connection.create_sender(name), connection.create_receiver(name, credit=1)
    sender.send(proton.Message(body="a"))
    assert receiver.receive().first_acquirer
    receiver.release(delivered=False)
    again = receiver.receive()
    assert (again.body, again.first_acquirer, again.delivery_count) == ("a", False, 0)
    receiver.release(delivered=True)  # it is `modified`, but not as a failed delivery
    assert receiver.receive().delivery_count == 0
    receiver.accept()
    with pytest.raises(proton.Timeout):
        receiver.receive(timeout=0.3)


def test_rejected_messages_do_not_return(connection: Connection, name: str) -> None:
    sender, receiver = connection.create_sender(name), connection.create_receiver(name)
    sender.send(proton.Message(body="a"))
    receiver.receive()
    receiver.reject()
    with pytest.raises(proton.Timeout):
        receiver.receive(timeout=0.3)


def test_a_failed_delivery_is_counted_and_annotated(connection: Connection, name: str) -> None:
    sender, receiver = connection.create_sender(name), connection.create_receiver(name, credit=1)
    sender.send(proton.Message(body="a"))
    receiver.receive()
    delivery = receiver.fetcher.unsettled[0]
    delivery.local.failed = True
    delivery.local.annotations = {proton.symbol("x-opt-why"): "busy"}
    receiver.settle(proton.Delivery.MODIFIED)
    again = receiver.receive()
    assert (again.delivery_count, again.annotations) == (1, {"x-opt-why": "busy"})
    receiver.accept()


def test_a_full_queue_rejects(connection: Connection, broker: BrokerProcess, name: str) -> None:
    declare_full(broker, name)
    sender = connection.create_sender(name)
    with pytest.raises(utils.SendException) as caught:
        sender.send(proton.Message(body="does not fit"))
    assert caught.value.state == proton.Delivery.REJECTED


def test_unroutable_messages_are_released(connection: Connection) -> None:
    sender = connection.create_sender("/exchanges/amq.direct/nowhere")
    with pytest.raises(utils.SendException) as caught:
        sender.send(proton.Message(body="a"))
    assert caught.value.state == proton.Delivery.RELEASED


def test_a_missing_queue_is_refused(connection: Connection) -> None:
    with pytest.raises(utils.LinkDetached, match="not-found"):
        connection.create_sender("/queues/no-such-queue")
    with pytest.raises(utils.LinkDetached, match="not-found"):
        connection.create_receiver("/queues/no-such-queue")


def test_a_wrong_password_is_refused(broker: BrokerProcess) -> None:
    with pytest.raises(proton.ConnectionException):
        utils.BlockingConnection(
            f"amqp://guest:wrong@127.0.0.1:{broker.port}", timeout=20, allowed_mechs="PLAIN", reconnect=False
        )


def test_requests_are_answered_through_a_dynamic_node(connection: Connection, name: str) -> None:
    server, answers = connection.create_receiver(name), connection.create_receiver(None, dynamic=True)
    reply_to = answers.link.remote_source.address
    assert reply_to
    connection.create_sender(name, name="requests").send(proton.Message(body="?", reply_to=reply_to, correlation_id=1))
    found = server.receive()
    server.accept()
    anonymous = connection.create_sender(None)
    anonymous.send(proton.Message(address=found.reply_to, body="!", correlation_id=found.correlation_id))
    assert answers.receive().body == "!"


class Traffic(handlers.MessagingHandler):  # type: ignore[misc]
    """Sends `COUNT` messages and receives them, on one connection."""

    def __init__(self, address: str, name: str, sending: Any, receiving: Any, *, second: bool) -> None:
        super().__init__(prefetch=100, auto_accept=not second, auto_settle=not second)
        self._where = address
        self._name = name
        self._options = sending, receiving
        self._second = second
        self._sent = 0
        self.settled = 0
        self.got: list[int] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._where, allowed_mechs="PLAIN", reconnect=False)
        event.container.create_sender(connection, self._name, options=self._options[0])
        event.container.create_receiver(connection, self._name, options=self._options[1])

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._sent < COUNT:
            event.sender.send(proton.Message(body=self._sent, durable=self._sent % 2 == 0))
            self._sent += 1

    def on_accepted(self, event: Any) -> None:
        if self._second:
            event.delivery.settle()
            self.settled += 1
            self._end(event)

    def on_message(self, event: Any) -> None:
        self.got.append(event.message.body)
        if self._second and not event.delivery.settled:
            event.delivery.update(proton.Delivery.ACCEPTED)
        self._end(event)

    def on_settled(self, event: Any) -> None:
        if event.link.is_receiver:
            event.delivery.settle()
        else:
            self.settled += not self._second
        self._end(event)

    def _end(self, event: Any) -> None:
        if len(self.got) == COUNT and (self.settled >= COUNT or self._options[0] is MODES["at most once"][0]):
            event.connection.close()


class Second(reactor.LinkOption):  # type: ignore[misc]
    """The receiver settles second."""

    def apply(self, link: Any) -> None:
        link.snd_settle_mode = proton.Link.SND_UNSETTLED
        link.rcv_settle_mode = proton.Link.RCV_SECOND


MODES = {
    "at most once": (reactor.AtMostOnce(), reactor.AtMostOnce()),
    "at least once": (reactor.AtLeastOnce(), reactor.AtLeastOnce()),
    "exactly once": (Second(), Second()),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_settlement_mode_delivers_all_messages_in_order(broker: BrokerProcess, name: str, mode: str) -> None:
    traffic = Traffic(url(broker), name.replace(" ", "-"), *MODES[mode], second=mode == "exactly once")
    reactor.Container(traffic).run()
    assert traffic.got == list(range(COUNT))


def bodies(connection: Connection, name: str, *options: Any) -> list[int]:
    """Receive until the queue has nothing more for a receiver with these options, and close it."""
    receiver = connection.create_receiver(name, credit=100, options=list(options))
    found = []
    try:
        while True:
            found.append(receiver.receive(timeout=1).body)
            if receiver.fetcher.unsettled:  # copies are settled
                receiver.accept()
    except proton.Timeout:
        pass
    finally:
        receiver.close()
    return found


def test_a_selector_takes_what_matches_and_leaves_the_rest(connection: Connection, name: str) -> None:
    sender = connection.create_sender(name)
    for i in range(10):
        sender.send(proton.Message(body=i, properties={"n": i, "parity": "odd" if i % 2 else "even"}))
    assert bodies(connection, name, reactor.Selector("parity = 'odd' AND n BETWEEN 2 AND 8")) == [3, 5, 7]
    assert bodies(connection, name) == [0, 1, 2, 4, 6, 8, 9]


def test_a_malformed_selector_is_refused(connection: Connection, name: str) -> None:
    connection.create_sender(name)
    with pytest.raises(utils.LinkDetached, match="ends too early"):
        connection.create_receiver(name, options=[reactor.Selector("n >")])


def test_a_browser_takes_nothing(connection: Connection, name: str) -> None:
    sender = connection.create_sender(name)
    for i in range(5):
        sender.send(proton.Message(body=i))
    assert bodies(connection, name, reactor.Copy()) == list(range(5))
    assert bodies(connection, name) == list(range(5))


def test_a_message_can_be_delayed(connection: Connection, name: str) -> None:
    sender, receiver = connection.create_sender(name), connection.create_receiver(name, credit=10)
    sender.send(proton.Message(body="late", annotations={proton.symbol("x-opt-delivery-delay"): 300}))
    sender.send(proton.Message(body="early"))
    assert [receiver.receive().body for _ in range(2)] == ["early", "late"]


class Survivor(handlers.MessagingHandler):  # type: ignore[misc]
    """Sends and receives numbers on a connection that reconnects, and kills the broker meanwhile."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(prefetch=20)
        self._broker = broker
        self._killed = False
        self._unsent = list(range(COUNT))
        self._unsettled: dict[str, int] = {}
        self.accepted: set[int] = set()
        self.got: set[int] = set()
        self.connections = 0

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(url(self._broker), allowed_mechs="PLAIN", reconnect=[0.05])
        event.container.create_receiver(connection, "q")
        event.container.create_sender(connection, "q")

    def on_connection_opened(self, event: Any) -> None:
        self.connections += 1

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._unsent and len(self._unsettled) < 20:
            number = self._unsent.pop(0)
            self._unsettled[event.sender.send(proton.Message(body=number, durable=True)).tag] = number

    def on_accepted(self, event: Any) -> None:
        self.accepted.add(self._unsettled.pop(event.delivery.tag))
        if not self._killed and len(self.accepted) >= COUNT // 2:
            self._killed = True
            self._broker.kill()
            self._broker.start()
        self._go_on(event)

    def on_message(self, event: Any) -> None:
        self.got.add(event.message.body)
        self._go_on(event)

    def on_disconnected(self, event: Any) -> None:
        self._unsent[:0] = sorted(self._unsettled.values())  # their outcome is unknown
        self._unsettled.clear()

    def _go_on(self, event: Any) -> None:
        if len(self.accepted) == len(self.got) == COUNT:
            event.connection.close()
        elif event.link.is_sender:
            self.on_sendable(event)


def test_a_connection_survives_a_kill_of_the_broker(own_broker: Any) -> None:
    survivor = Survivor(own_broker(""))
    reactor.Container(survivor).run()
    assert survivor.accepted == survivor.got == set(range(COUNT))
    assert survivor.connections == 2


class Transacted(handlers.MessagingHandler, handlers.TransactionHandler):  # type: ignore[misc]
    """Rolls back a message, commits two, rolls back their acceptance, and commits it."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._where = address
        self._name = name
        self._step = 0
        self.got: list[tuple[str, int]] = []
        self.log: list[str] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._where, allowed_mechs="PLAIN", reconnect=False)
        self._sender = event.container.create_sender(connection, self._name)
        self._receiver = event.container.create_receiver(connection, self._name)
        event.container.declare_transaction(connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        if self._step == 0:
            self._transaction.send(self._sender, proton.Message(body="undone"))
            self._transaction.abort()
        elif self._step == 1:
            for body in ("kept", "too"):
                self._transaction.send(self._sender, proton.Message(body=body, durable=True))
            self._transaction.commit()
        else:
            self._receiver.flow(2)

    def on_message(self, event: Any) -> None:
        self.got.append((event.message.body, event.message.delivery_count))
        self._transaction.accept(event.delivery)
        if len(self.got) == 2:
            self._transaction.abort()
        elif len(self.got) == 4:
            self._transaction.commit()

    def on_transaction_aborted(self, event: Any) -> None:
        self._next("aborted", event)

    def on_transaction_committed(self, event: Any) -> None:
        self._next("committed", event)

    def _next(self, outcome: str, event: Any) -> None:
        self.log.append(outcome)
        self._step += 1
        if self._step == 4:
            event.connection.close()
        else:
            event.container.declare_transaction(event.connection, handler=self)


def test_transactions_are_all_or_nothing(broker: BrokerProcess, connection: Connection, name: str) -> None:
    transacted = Transacted(url(broker), name)
    reactor.Container(transacted).run()
    assert transacted.log == ["aborted", "committed", "aborted", "committed"]
    assert transacted.got == [("kept", 0), ("too", 0), ("kept", 0), ("too", 0)]
    assert bodies(connection, name) == []
