"""RabbitMQ's Python client for AMQP 1.0, unmodified. `make proton` installs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker import BrokerProcess
from tests.interop.conftest import LIKE_RABBITMQ

rabbit: Any = pytest.importorskip("rabbitmq_amqp_python_client", reason="make proton")

if TYPE_CHECKING:
    Connection = Any

pytestmark = pytest.mark.interop
Queue, Quorum, Stream = rabbit.ClassicQueueSpecification, rabbit.QuorumQueueSpecification, rabbit.StreamSpecification
Address = rabbit.AddressHelper


def url(broker: BrokerProcess) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}/"


@pytest.fixture
def connection(broker_like_rabbitmq: BrokerProcess) -> Iterator[Connection]:
    environment = rabbit.Environment(uri=url(broker_like_rabbitmq))
    made = environment.connection()
    made.dial()
    yield made
    environment.close()


class Enough(Exception):  # noqa: N818 - it is no error
    """The consumer has what it waited for. An exception is the way in which the client's own tests end a consumer."""


class Collector(rabbit.AMQPMessagingHandler):  # type: ignore[misc]
    """Settles the messages by the given functions, one after the other."""

    def __init__(self, *settle: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self._settle = list(settle)
        self.messages: list[Any] = []

    def on_amqp_message(self, event: Any) -> None:
        self.messages.append(event.message)
        self._settle.pop(0)(self.delivery_context, event)
        if not self._settle:
            raise Enough


def accept(context: Any, event: Any) -> None:
    context.accept(event)


def leave(_context: Any, _event: Any) -> None:
    """Settle nothing, because the message is settled already."""


def consume(connection: Connection, queue: str, *settle: Callable[[Any, Any], None], **options: Any) -> list[Any]:
    """Receive one message for each function, which settles it."""
    handler = Collector(*settle)
    consumer = connection.consumer(Address.queue_address(queue), message_handler=handler, **options)
    with pytest.raises(Enough):
        consumer.run()
    consumer.close()
    return handler.messages


def publish(connection: Connection, address: str, *messages: Any) -> None:
    publisher = connection.publisher(address)
    for each in messages:
        assert publisher.publish(each).remote_state == rabbit.OutcomeState.ACCEPTED
    publisher.close()


def numbered(count: int) -> list[Any]:
    return [rabbit.Message(body=b"%d" % i, application_properties={"number": i}) for i in range(count)]


def test_the_client_refuses_the_brokers_own_name(broker: BrokerProcess) -> None:
    connection = rabbit.Environment(uri=url(broker)).connection()
    with pytest.raises(rabbit.ValidationCodeException, match="non-RabbitMQ server"):
        connection.dial()
    connection._conn.close()


@pytest.mark.parametrize("specification", [Queue, Quorum, Stream])
def test_queues_are_declared_described_and_deleted(connection: Connection, name: str, specification: Any) -> None:
    management = connection.management()
    name = f"{name} /%+;="
    for _ in range(2):
        management.declare_queue(specification(name=name))
    info = management.queue_info(name)
    assert (info.name, info.is_durable, info.message_count, info.consumer_count) == (name, True, 0, 0)
    assert info.queue_type.value == info.arguments["x-queue-type"]
    management.delete_queue(name)
    with pytest.raises(rabbit.ValidationCodeException, match="404"):
        management.queue_info(name)


def test_another_declaration_is_a_conflict(connection: Connection, name: str) -> None:
    management = connection.management()
    management.declare_queue(Queue(name=name))
    with pytest.raises(rabbit.ValidationCodeException, match="ErrPreconditionFailed"):
        management.declare_queue(Quorum(name=name))
    exchange = rabbit.ExchangeSpecification(name=name, exchange_type=rabbit.ExchangeType.topic)
    management.declare_exchange(exchange)
    exchange.exchange_type = rabbit.ExchangeType.fanout
    with pytest.raises(rabbit.ValidationCodeException, match="ErrPreconditionFailed"):
        management.declare_exchange(exchange)


def test_queues_and_exchanges_are_bound_purged_and_unbound(connection: Connection, name: str) -> None:
    management = connection.management()
    other = f"{name}/2"
    for exchange in (name, other):
        management.declare_exchange(
            rabbit.ExchangeSpecification(name=exchange, exchange_type=rabbit.ExchangeType.topic)
        )
    management.declare_queue(Queue(name=name))
    to_queue = rabbit.ExchangeToQueueBindingSpecification(
        source_exchange=other, destination_queue=name, binding_key="a b.#"
    )
    to_exchange = rabbit.ExchangeToExchangeBindingSpecification(
        source_exchange=name, destination_exchange=other, binding_key="#"
    )
    management.bind(to_queue)
    location = management.bind(to_exchange)
    publish(connection, Address.exchange_address(name, "a b.c"), *numbered(3))
    assert management.purge_queue(name) == 3
    management.unbind(to_queue)
    management.unbind(location)
    with pytest.raises(Exception) as caught:
        publish(connection, Address.exchange_address(name, "a b.c"), *numbered(1))
    assert type(caught.value).__name__ == "SendException"  # it was released
    for exchange in (name, other):
        management.delete_exchange(exchange)
    management.delete_queue(name)


def test_a_full_queue_rejects(connection: Connection, name: str) -> None:
    management = connection.management()
    management.declare_queue(Quorum(name=name, max_len=1, overflow_behaviour="reject-publish"))
    publish(connection, Address.queue_address(name), *numbered(1))
    with pytest.raises(rabbit.AmqpMessageRejectedException, match="full"):
        publish(connection, Address.queue_address(name), *numbered(1))
    publisher = connection.publisher()
    with pytest.raises(rabbit.AmqpMessageRejectedException):
        publisher.publish(Address.message_to_address_helper(rabbit.Message(body=b"x"), Address.queue_address(name)))


def test_messages_are_accepted_requeued_and_discarded(connection: Connection, name: str) -> None:
    management = connection.management()
    dead = f"{name}.dead"
    management.declare_queue(Queue(name=dead))
    management.declare_queue(Quorum(name=name, dead_letter_exchange="amq.direct", dead_letter_routing_key=dead))
    management.bind(
        rabbit.ExchangeToQueueBindingSpecification(
            source_exchange="amq.direct", destination_queue=dead, binding_key=dead
        )
    )
    publish(connection, Address.queue_address(name), *numbered(4))
    found = consume(
        connection,
        name,
        accept,
        lambda context, event: context.requeue(event),
        lambda context, event: context.requeue_with_annotations(event, {"x-opt-tries": "2"}),
        lambda context, event: context.discard(event),
        lambda context, event: context.discard_with_annotations(event, {"x-opt-why": "bad"}),
        accept,
    )
    assert [bytes(each.body) for each in found] == [b"0", b"1", b"2", b"3", b"1", b"2"]
    assert found[5].annotations["x-opt-tries"] == "2"
    letters = consume(connection, dead, accept, accept)
    assert [bytes(each.body) for each in letters] == [b"3", b"1"]
    assert letters[1].annotations["x-opt-why"] == "bad"
    assert found[0].annotations["x-exchange"] == ""
    assert found[0].annotations["x-routing-key"] == name


def test_presettled_messages_are_gone(connection: Connection, name: str) -> None:
    connection.management().declare_queue(Queue(name=name))
    publish(connection, Address.queue_address(name), *numbered(3))
    options = rabbit.ConsumerOptions(settle_strategy=rabbit.ConsumerSettleStrategy.PreSettled)
    assert len(consume(connection, name, leave, leave, leave, consumer_options=options)) == 3
    assert connection.management().queue_info(name).message_count == 0


def test_streams_are_read_from_offsets_and_filtered(connection: Connection, name: str) -> None:
    connection.management().declare_queue(Stream(name=name))
    messages = numbered(10)
    for i, each in enumerate(messages):
        each.subject = "odd" if i % 2 else "even"
        if i >= 5:
            each.annotations = {"x-stream-filter-value": "late"}
    publish(connection, Address.queue_address(name), *messages)

    def read(expected: str, offset: Any = rabbit.OffsetSpecification.first, **filters: Any) -> None:
        chosen = rabbit.StreamFilterOptions(**filters) if filters else None
        options = rabbit.StreamConsumerOptions(offset_specification=offset, filter_options=chosen)
        found = consume(connection, name, *[accept] * len(expected), consumer_options=options)
        assert b"".join(bytes(each.body) for each in found).decode() == expected
        assert [each.annotations["x-stream-offset"] for each in found] == [int(digit) for digit in expected]

    read("0123456789")
    read("789", 7)
    read("56789", values=["late"])
    read("13579", message_properties=rabbit.MessageProperties(subject="odd"))
    read("4", application_properties={"number": 4})
    read("468", sql="properties.subject = 'even' AND application_properties.number > 3")


def reply(connection: Connection, consumer: Any) -> None:
    publish(connection, consumer.address, *numbered(1))
    consumer.run()


def test_a_dynamic_queue_takes_replies(connection: Connection, name: str) -> None:
    options = rabbit.ConsumerOptions(settle_strategy=rabbit.ConsumerSettleStrategy.DirectReplyTo)
    handler = Collector(leave)
    consumer = connection.consumer(message_handler=handler, consumer_options=options)
    with pytest.raises(Enough):  # the reply may arrive while the message is published
        reply(connection, consumer)
    assert bytes(handler.messages[0].body) == b"0"


def test_confirmed_messages_survive_a_kill(own_broker: Callable[[str], BrokerProcess], name: str) -> None:
    broker = own_broker(LIKE_RABBITMQ)
    environment = rabbit.Environment(uri=url(broker))
    connection = environment.connection()
    connection.dial()
    connection.management().declare_queue(Quorum(name=name))
    publisher = connection.publisher(Address.queue_address(name))
    for each in numbered(100):
        assert publisher.publish(each).remote_state == rabbit.OutcomeState.ACCEPTED
    broker.kill()
    broker.start()
    with pytest.raises(Exception, match="disconnected"):  # the client reconnects by itself only after a Close
        publisher.publish(rabbit.Message(body=b"lost"))
    again = rabbit.Environment(uri=url(broker)).connection()
    again.dial()
    publish(again, Address.queue_address(name), rabbit.Message(body=b"100"))
    found = consume(again, name, *[accept] * 101)
    assert [int(bytes(each.body)) for each in found] == list(range(101))
    again.close()
