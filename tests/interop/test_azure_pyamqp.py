"""The AMQP 1.0 stack of azure-servicebus, in pure Python, works with the broker unmodified.

The package uses it internally. It shares no code with Proton, and shows how another implementation reads the
specification. As a sender it cannot settle second or send settled messages, and the only outcome that it understands is
`accepted`: it does not know `released`, and expects an error in `rejected` to have more fields than it must have.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker import BrokerProcess

pyamqp: Any = pytest.importorskip("azure.servicebus._pyamqp", reason="make setup")
authentication: Any = pytest.importorskip("azure.servicebus._pyamqp.authentication")
constants: Any = pytest.importorskip("azure.servicebus._pyamqp.constants")
errors: Any = pytest.importorskip("azure.servicebus._pyamqp.error")
messages: Any = pytest.importorskip("azure.servicebus._pyamqp.message")

if TYPE_CHECKING:
    Sender = Any
    Receiver = Any
    Message = Any
    Frame = Any

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the client leaves sockets open
]
PATIENCE = 20.0
_DELIVERY_ID, _TAG, _SETTLED = 1, 2, 4


class Clients:
    """Makes senders and receivers, each with a connection of its own, and closes them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[Any] = []

    def sender(self, target: str, password: str = "guest", **options: Any) -> Sender:
        first = constants.ReceiverSettleMode.First
        return self._made(pyamqp.SendClient, target, password, receive_settle_mode=first, **options)

    def receiver(self, source: str, **options: Any) -> Receiver:
        return self._made(pyamqp.ReceiveClient, source, "guest", **{"link_credit": 10, **options})

    def _made(self, kind: Any, address: str, password: str, **options: Any) -> Any:
        login = authentication.SASLPlainAuth("guest", password)
        made = kind(f"127.0.0.1:{self._port}", address, auth=login, use_tls=False, **options)
        self._open.append(made)
        return made

    def close(self) -> None:
        for one in self._open:
            one.close()


@pytest.fixture
def clients(broker: BrokerProcess) -> Iterator[Clients]:
    with closing(Clients(broker.port)) as made:
        yield made


def message(body: bytes) -> Message:
    return messages.Message(header=messages.Header(durable=True), data=[body])


def send(sender: Sender, body: bytes) -> None:
    sender.send_message(message(body), timeout=PATIENCE)


def receive(receiver: Receiver, patience: float = PATIENCE) -> tuple[Frame, Message]:
    """Return the next delivery. Raises queue.Empty if there is none."""
    receiver.open()
    deadline = time.monotonic() + patience
    while receiver._received_messages.empty() and time.monotonic() < deadline:
        receiver.do_work()
    frame, found = receiver._received_messages.get_nowait()
    return frame, found


def body(found: Message) -> bytes:
    return b"".join(found.data)


def settle(receiver: Receiver, frame: Frame, outcome: str, **options: Any) -> None:
    receiver.settle_messages(frame[_DELIVERY_ID], frame[_TAG], outcome, **options)


def test_messages_go_there_and_back(clients: Clients, name: str) -> None:
    sender, receiver = clients.sender(name), clients.receiver(name)
    sent = messages.Message(
        header=messages.Header(durable=True, priority=7),
        properties=messages.Properties(message_id="m", correlation_id="c", subject="s", content_type="text/plain"),
        application_properties={"key": "value", "number": 5},
        value={"list": [1, "two", None]},
    )
    for _ in range(20):
        sender.send_message(sent, timeout=PATIENCE)
        frame, got = receive(receiver)
        assert got.value == {b"list": [1, b"two", None]}
        assert got.application_properties == {b"key": b"value", b"number": 5}
        assert (got.header.durable, got.header.priority, got.header.first_acquirer) == (True, 7, True)
        properties = got.properties
        assert (properties.message_id, properties.correlation_id, properties.subject) == (b"m", b"c", b"s")
        settle(receiver, frame, "accepted", await_outcome=True, outcome_timeout=PATIENCE)


def test_large_messages_go_in_several_frames(clients: Clients, name: str) -> None:
    sender, receiver = clients.sender(name), clients.receiver(name, max_frame_size=16_384)
    sent = bytes(i % 251 for i in range(1000)) * 3000
    send(sender, sent)
    frame, got = receive(receiver)
    assert body(got) == sent
    settle(receiver, frame, "accepted")


@pytest.mark.parametrize("second", [False, True], ids=["settled by the receiver", "settled by the broker"])
def test_each_outcome_has_its_effect(clients: Clients, name: str, second: bool) -> None:
    mode = constants.ReceiverSettleMode.Second if second else constants.ReceiverSettleMode.First
    sender, receiver = clients.sender(name), clients.receiver(name, link_credit=1, receive_settle_mode=mode)
    send(sender, b"first")
    send(sender, b"second")
    steps: list[tuple[bytes, int, str, dict[str, Any]]] = [
        (b"first", 0, "released", {}),
        (b"first", 0, "modified", {"delivery_failed": True, "message_annotations": {b"x-opt-why": b"busy"}}),
        (b"first", 1, "modified", {"delivery_failed": False}),
        (b"first", 1, "rejected", {}),
        (b"second", 0, "accepted", {}),
    ]
    for number, (expected, count, outcome, options) in enumerate(steps):
        frame, got = receive(receiver)
        assert (body(got), got.header.delivery_count or 0) == (expected, count), number
        assert (got.message_annotations or {}).get(b"x-opt-why") == (b"busy" if number in (2, 3) else None)
        settle(receiver, frame, outcome, await_outcome=second, outcome_timeout=PATIENCE, **options)
    with pytest.raises(queue.Empty):
        receive(receiver, 0.3)


def test_presettled_messages_arrive_in_order(clients: Clients, name: str) -> None:
    sender, receiver = clients.sender(name), clients.receiver(name, send_settle_mode=constants.SenderSettleMode.Settled)
    for i in range(100):
        send(sender, b"%d" % i)
    for i in range(100):
        frame, got = receive(receiver)
        assert (body(got), frame[_SETTLED]) == (b"%d" % i, True)


def test_a_missing_queue_is_refused(clients: Clients) -> None:
    with pytest.raises(errors.AMQPLinkError, match="amqp:not-found"):
        send(clients.sender("/queues/no-such-queue"), b"lost")
    with pytest.raises(errors.AMQPLinkError, match="amqp:not-found"):
        receive(clients.receiver("/queues/no-such-queue"))


def test_a_wrong_password_is_refused(clients: Clients) -> None:
    with pytest.raises(ValueError, match="SASL negotiation failed"):
        clients.sender("anywhere", password="wrong").open()


def test_the_client_reconnects_after_a_kill(own_broker: Callable[[str], BrokerProcess]) -> None:
    broker = own_broker("")
    with closing(Clients(broker.port)) as clients:
        sender, receiver = clients.sender("q"), clients.receiver("q")
        for i in range(50):
            send(sender, b"%d" % i)
        for _ in range(5):
            settle(receiver, receive(receiver)[0], "accepted", await_outcome=True, outcome_timeout=PATIENCE)
        broker.kill()
        broker.start()
        send(sender, b"50")  # the client notices the loss, and connects again
        got: set[int] = set()  # the messages that the receiver had before arrive again
        while not got >= set(range(5, 51)):
            got.update(int(body(one)) for one in receiver.receive_message_batch(max_batch_size=50, timeout=1))
    assert got == set(range(5, 51))
