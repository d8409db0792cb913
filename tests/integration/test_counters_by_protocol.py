"""The traffic of each protocol moves each counter that applies to it, as a scrape shows them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pika
import pytest
from pika.exceptions import UnroutableError
from prometheus_client.parser import text_string_to_metric_families

from escrowmq.amqp10 import Message, NotAccepted, connect, exchange, queue
from escrowmq.perf.runner import run
from escrowmq.perf.url import parse_url
from escrowmq.perf.workload import (
    AMQP010,
    AMQP091,
    AMQP10,
    EXPLICIT,
    ONE_PHASE,
    ROCKETMQ,
    ROCKETMQ_GRPC,
    TWO_PHASE,
    workload_of,
)
from escrowmq.wire.amqp010.codec.commands import encode_header
from escrowmq.wire.amqp010.codec.spec import DeliveryProperties, MessageReject, MessageRelease, MessageTransfer
from tests.broker import wait_until
from tests.harness.amqp010_client import SocketClient
from tests.integration.test_server_http import HttpBroker, Owner
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.ports import reserve_port

COUNT = 60
PUBLISHED = ("received", "received_confirm", "confirmed")
"""Counters of publishes, which have the label `protocol`."""


class Site(NamedTuple):
    """A broker with listeners for all protocols."""

    http: HttpBroker
    ports: RocketmqPorts

    def load(self, protocol: str, changes: Mapping[str, Any]) -> None:
        """Run a load of `COUNT` messages to its end."""
        url, further = self.http.broker.url, dict(changes)
        name_server = f"127.0.0.1:{self.ports.name_server}"
        if protocol == ROCKETMQ:
            url = f"rocketmq://{name_server}"
        elif protocol == ROCKETMQ_GRPC:
            url, further["name_server"] = f"rocketmq+grpc://127.0.0.1:{self.ports.grpc}", name_server
        workload = workload_of(None, {"protocol": protocol, "count": COUNT, **further})
        outcome = run(parse_url(url), workload, 60, 20, lambda *_: None, 1.0)
        assert outcome.totals.published == COUNT

    def counted(self) -> Counter[str]:
        """Return the counters by name, without `_total`; a label is in braces."""
        text = self.http.get("/metrics")[1].decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        found: Counter[str] = Counter()
        for sample in samples:
            if sample.name.endswith("_total"):
                labels = "".join(f"{{{sample.labels[key]}}}" for key in sorted(sample.labels))
                found[sample.name.removesuffix("_total") + labels] = int(sample.value)
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    ports, owner = RocketmqPorts(), Owner()
    port = reserve_port(owner)
    with ports.broker(tmp_path_factory.mktemp("broker"), f'[http]\naddress = "127.0.0.1:{port}"\n') as broker:
        http = HttpBroker(broker, port)
        wait_until(http.answers)
        yield Site(http, ports)


def messages(**counts: int) -> dict[str, int]:
    """Return counters whose names in RabbitMQ begin with `rabbitmq_global_messages_`."""
    return {f"rabbitmq_global_messages_{name}": count for name, count in counts.items()}


def published(protocol: str, *names: str) -> dict[str, int]:
    return {f"rabbitmq_global_messages_{name}{{{protocol}}}": COUNT for name in names}


def branches(kind: str, count: int, *events: str) -> dict[str, int]:
    return {f"escrowmq_branches{{{event}}}{{{kind}}}": count for event in events}


ACKNOWLEDGED = messages(
    routed=COUNT, delivered=COUNT, delivered_consume_manual_ack=COUNT, acknowledged=COUNT, delivered_consume_auto_ack=0
)
SETTLED = messages(routed=COUNT, delivered=COUNT, delivered_consume_auto_ack=COUNT, acknowledged=0)
CONFIRMS = {"confirms": True, "persistent": True, "ack_every": 10}
LOADS: dict[str, tuple[str, str, dict[str, Any], dict[str, int]]] = {
    "0-9-1: confirms": (AMQP091, "amqp091", CONFIRMS, published("amqp091", *PUBLISHED) | ACKNOWLEDGED),
    "0-9-1: no acknowledgements": (AMQP091, "amqp091", {"ack_every": 0}, published("amqp091", "received") | SETTLED),
    "0-9-1: got one by one": (
        AMQP091,
        "amqp091",
        {"get": 4, "ack_every": 1},
        messages(delivered_get_manual_ack=COUNT, delivered_consume_manual_ack=0, acknowledged=COUNT),
    ),
    "0-9-1: transactions": (
        AMQP091,
        "amqp091",
        {"tx_size": 10},
        published("amqp091", "received") | branches("local", COUNT // 10, "committed"),
    ),
    "0-9-1: two-phase": (
        AMQP091,
        "amqp091",
        {"tx_size": 10, "xa": TWO_PHASE},
        published("amqp091", "received") | branches("xa", COUNT // 10, "begun", "prepared", "committed"),
    ),
    "0-10: acceptances": (
        AMQP010,
        "amqp010",
        CONFIRMS | {"mode": EXPLICIT},
        published("amqp010", *PUBLISHED) | ACKNOWLEDGED,
    ),
    "0-10: completions": (AMQP010, "amqp010", CONFIRMS, published("amqp010", "received") | ACKNOWLEDGED),
    "0-10: no acknowledgements": (AMQP010, "amqp010", {"ack_every": 0}, published("amqp010", "received") | SETTLED),
    "0-10: transactions": (
        AMQP010,
        "amqp010",
        {"tx_size": 10},
        published("amqp010", "received") | branches("local", COUNT // 10, "committed"),
    ),
    "0-10: one-phase": (
        AMQP010,
        "amqp010",
        {"tx_size": 10, "xa": ONE_PHASE},
        published("amqp010", "received") | branches("xa", COUNT // 10, "begun", "committed"),
    ),
    "1.0: settled first": (AMQP10, "amqp10", CONFIRMS, published("amqp10", *PUBLISHED) | ACKNOWLEDGED),
    "1.0: presettled": (AMQP10, "amqp10", {"ack_every": 0}, published("amqp10", "received") | SETTLED),
    "1.0: transactions": (
        AMQP10,
        "amqp10",
        {"tx_size": 10},
        published("amqp10", "received") | branches("local", COUNT // 10, "committed"),
    ),
    "remoting: sends": (
        ROCKETMQ,
        "rocketmq-remoting",
        {"confirms": True},
        published("rocketmq-remoting", *PUBLISHED) | SETTLED,
    ),
    "remoting: half messages": (
        ROCKETMQ,
        "rocketmq-remoting",
        {"tx_size": 1},
        published("rocketmq-remoting", "received")
        | {"escrowmq_half_messages{stored}": COUNT, "escrowmq_half_messages{committed}": COUNT},
    ),
    "gRPC: sends": (
        ROCKETMQ_GRPC,
        "rocketmq-grpc",
        {"confirms": True},
        published("rocketmq-grpc", *PUBLISHED) | ACKNOWLEDGED,
    ),
    "gRPC: half messages": (
        ROCKETMQ_GRPC,
        "rocketmq-grpc",
        {"tx_size": 1},
        published("rocketmq-grpc", "received")
        | {"escrowmq_half_messages{stored}": COUNT, "escrowmq_half_messages{committed}": COUNT},
    ),
}
"""Protocol of the load, label of its counters, options of the load, and how much it adds to counters."""


@pytest.mark.parametrize("name", LOADS)
def test_a_load_moves_the_counters_that_apply(site: Site, name: str) -> None:
    protocol, label, changes, expected = LOADS[name]
    before = site.counted()
    site.load(protocol, changes)

    def added() -> dict[str, int]:
        after = site.counted()
        return {key: after[key] - before[key] for key in expected}

    with contextlib.suppress(TimeoutError, AssertionError):
        wait_until(lambda: added() == expected)
    assert added() == expected
    others = {f"rabbitmq_global_messages_received{{{each}}}" for _, each, *_ in LOADS.values()} - set(expected)
    after = site.counted()
    assert all(after[key] == before[key] for key in others if label not in key)


@contextlib.contextmanager
def pika_channel(site: Site) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(site.http.broker.url)) as connection:
        yield connection.channel()


def of_amqp091(site: Site) -> None:
    with pika_channel(site) as channel:
        channel.basic_publish("", "nowhere", b"dropped")
        channel.basic_publish("", "judged", b"x")
        for requeue in (True, False):
            method, _, _ = next(channel.consume("judged", inactivity_timeout=20))
            channel.basic_reject(method.delivery_tag, requeue=requeue)
        channel.cancel()
        channel.basic_get("judged")
        channel.confirm_delivery()
        with pytest.raises(UnroutableError):
            channel.basic_publish("", "nowhere", b"returned", mandatory=True)


def of_amqp010(site: Site) -> None:
    with SocketClient(site.http.broker.port) as client:
        for discard in (True, False):
            properties = DeliveryProperties(routing_key="nowhere", discard_unroutable=discard)
            client.do(MessageTransfer("", 0, 0), encode_header([properties]), b"x")
        client.publish("judged", b"x")
        client.subscribe("judged")
        for outcome in (partial(MessageRelease, set_redelivered=True), MessageReject):
            transferred = client.next("judged")
            assert transferred is not None
            client.do(outcome(((transferred.number, transferred.number),)))


def of_amqp10(site: Site) -> None:
    with connect(site.http.broker.url) as connection:
        with connection.sender(exchange("amq.direct", "nowhere"), mode="presettled") as sender:
            sender.send(Message(b"dropped"))
        with connection.sender(exchange("amq.direct", "nowhere")) as sender, pytest.raises(NotAccepted):
            sender.send(Message(b"returned"))
        connection.sender(queue("judged")).send(Message(b"x"))
        receiver = connection.receiver(queue("judged"), credit=1)
        receiver.receive().release()
        receiver.receive().reject()


JUDGED: dict[str, Callable[[Site], None]] = {"amqp091": of_amqp091, "amqp010": of_amqp010, "amqp10": of_amqp10}


@pytest.mark.parametrize("protocol", JUDGED)
def test_messages_that_are_not_accepted_are_counted(site: Site, protocol: str) -> None:
    """One message has no queue and is dropped, one is returned, one is delivered, released, delivered and rejected."""
    with pika_channel(site) as channel:
        channel.exchange_declare("dead", "fanout")
        channel.queue_declare("judged", durable=True, arguments={"x-dead-letter-exchange": "dead"})
    expected = {
        f"rabbitmq_global_messages_received{{{protocol}}}": 3,
        f"rabbitmq_global_messages_unroutable_dropped{{{protocol}}}": 1,
        f"rabbitmq_global_messages_unroutable_returned{{{protocol}}}": 1,
        **messages(routed=1, delivered_consume_manual_ack=2, redelivered=1, acknowledged=0, dead_lettered_rejected=1),
        **messages(get_empty=int(protocol == "amqp091")),
    }
    before = site.counted()
    JUDGED[protocol](site)
    after = site.counted()
    assert {key: after[key] - before[key] for key in expected} == expected
