"""Publishes with differing routing keys share runs, and arrive as if they had been read one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.table import FieldTable
from tests.harness.client import SimClient
from tests.harness.server import SimServer
from tests.unit.wire.amqp091.clients import Server, consuming, pair, queue
from tests.unit.wire.amqp091.test_shape import lists

Sent = tuple[str, bytes, bytes]
"""Routing key, property list and body."""


def message(number: int) -> Sent:
    props = Properties(delivery_mode=2, message_id=f"{number:04}", headers={"n": number})
    return f"own.{number % 7}.{number}", props.encode(), b"%d" % number


def frames(sent: Sent, exchange: str = "amq.topic", channel: int = 1, **options: bool) -> bytes:
    key, props, body = sent
    return method_frame(channel, spec.BasicPublish(exchange, key, **options)) + content_frames(channel, props, body, 0)


def bind(client: SimClient, name: str, *keys: str) -> None:
    for key in keys:
        client.call(1, spec.QueueBind(name, "amq.topic", key), spec.QueueBindOk)


def bound(*keys: str, arguments: FieldTable | None = None) -> tuple[Server, SimClient]:
    """A server whose queue `q` is bound to amq.topic with these keys, and a client."""
    server, client = pair()
    queue(client, "q", arguments)
    bind(client, "q", *(keys or ("own.#",)))
    return server, client


def publish(client: SimClient, *sent: Sent, mandatory: bool = False) -> None:
    """Publish the messages in one read."""
    client.send_bytes(b"".join(frames(each, mandatory=mandatory) for each in sent))


def keyed_entries(server: Server, name: str = "q") -> int:
    """How many messages of a queue have keyed content."""
    entries = server.broker.directory.vhosts["/"].queues[name].order.in_memory()
    return sum(entry.run.envelope.protocol == KEYED for entry in entries)


def deliveries(client: SimClient, name: str = "q", channel: int = 1) -> list[Sent]:
    client.call(channel, spec.BasicConsume(name, f"t-{name}", no_ack=True), spec.BasicConsumeOk)
    found = []
    for each in client.deliveries():
        assert isinstance(each.method, spec.BasicDeliver)
        found.append((each.method.routing_key, each.header, each.body))
    return found


def returned(client: SimClient) -> list[tuple[str, bytes]]:
    """Routing key and body of the messages that came back, which are removed from the client's inbox."""
    client.collect()
    found = [(m.method.routing_key, m.body) for m in client.inbox if isinstance(m.method, spec.BasicReturn)]
    client.inbox.clear()
    return found


def only_death(props: bytes) -> FieldTable:
    """The one line of a dead-letter history."""
    deaths = (Properties.decode(props).headers or {})["x-death"]
    assert isinstance(deaths, list)
    (death,) = deaths
    assert isinstance(death, dict)
    return death


SOME = tuple(map(message, range(40)))


@pytest.mark.rule("ORD-1")
@pytest.mark.parametrize("channel", [1, 3])
def test_they_arrive_in_order_octet_by_octet(channel: int) -> None:
    _, client = bound()
    if channel != 1:
        client.open_channel(channel)
    publish(client, *SOME)
    assert deliveries(client, channel=channel) == list(SOME)


def test_a_publisher_on_another_channel_makes_the_same_content() -> None:
    server, client = bound()
    client.open_channel(2)
    client.send_bytes(b"".join(frames(each, channel=2) for each in SOME))
    assert keyed_entries(server) == len(SOME) - 1
    assert deliveries(client) == list(SOME)


def test_they_share_runs_and_one_envelope() -> None:
    server, client = bound()
    publish(client, *SOME)
    assert keyed_entries(server) == len(SOME) - 1
    runs = [entry.run for entry in server.broker.directory.vhosts["/"].queues["q"].order.in_memory()]
    assert len({id(run) for run in runs}) == 2
    publish(client, *SOME)
    runs = [entry.run for entry in server.broker.directory.vhosts["/"].queues["q"].order.in_memory()]
    assert len({id(run) for run in runs}) == 3
    assert len({id(run.envelope) for run in runs}) == 2


def test_those_for_other_queues_go_there() -> None:
    _, client = bound("own.0.#", "own.1.#", "own.2.#")
    for name in ("other", "both"):
        queue(client, name)
    bind(client, "other", "own.3.#", "own.4.#")
    bind(client, "both", "own.#")
    publish(client, *SOME)
    assert deliveries(client) == [each for each in SOME if each[0] < "own.3"]
    assert deliveries(client, "other") == [each for each in SOME if "own.3" < each[0] < "own.5"]
    assert deliveries(client, "both") == list(SOME)


def test_a_binding_that_is_made_or_removed_counts_at_once() -> None:
    _, client = bound("own.1.#")
    publish(client, *SOME[:10])
    bind(client, "q", "own.2.#")
    publish(client, *SOME[:10])
    client.call(1, spec.QueueUnbind("q", "amq.topic", "own.1.#"), spec.QueueUnbindOk)
    publish(client, *SOME[:10])
    numbers = [int(body) for _, _, body in deliveries(client)]
    assert numbers == [1, 8, 1, 2, 8, 9, 2, 9]


def test_persistence_and_priority_are_those_of_each_message() -> None:
    server, client = bound()
    sent = [
        (f"own.{n}", Properties(delivery_mode=1 + n % 2, priority=n // 10, message_id=str(n)).encode(), b"x")
        for n in range(20)
    ]
    publish(client, *sent)
    entries = server.broker.directory.vhosts["/"].queues["q"].order.in_memory()
    found = [(entry.run.envelope.durable, entry.run.envelope.priority) for entry in entries]
    assert found == [(n % 2 == 1, n // 10) for n in range(20)]


def test_several_for_one_key_form_packed_runs() -> None:
    server, client = bound()
    publish(client, *SOME[:10])
    before = keyed_entries(server)
    publish(client, *[("own.same", props, body) for _, props, body in SOME])
    assert keyed_entries(server) - before <= 5


def test_basic_get_names_the_routing_key() -> None:
    _, client = bound()
    publish(client, *SOME[:3])
    found = []
    for _ in range(3):
        got = client.get(1, "q")
        assert got is not None
        assert isinstance(got.method, spec.BasicGetOk)
        found.append((got.method.routing_key, got.header, got.body))
    assert found == list(SOME[:3])


def test_a_stream_delivers_them_with_their_keys() -> None:
    _, client = bound(arguments={"x-queue-type": "stream"})
    publish(client, *SOME)
    client.call(1, spec.BasicQos(prefetch_count=1000), spec.BasicQosOk)
    consume = spec.BasicConsume("q", "t", arguments={"x-stream-offset": "first"})
    client.call(1, consume, spec.BasicConsumeOk)
    found = client.deliveries()
    assert [m.method.routing_key for m in found if isinstance(m.method, spec.BasicDeliver)] == [m[0] for m in SOME]
    assert [m.body for m in found] == [body for _, _, body in SOME]


def test_a_transaction_takes_them() -> None:
    _, client = bound()
    client.call(1, spec.TxSelect(), spec.TxSelectOk)
    publish(client, *SOME)
    assert client.count(1, "q") == 0
    client.call(1, spec.TxCommit(), spec.TxCommitOk)
    assert deliveries(client) == list(SOME)


def test_mandatory_messages_are_returned_if_their_queue_is_deleted_before_the_commit() -> None:
    _, client = bound()
    client.call(1, spec.TxSelect(), spec.TxSelectOk)
    publish(client, *SOME[:5], mandatory=True)
    client.open_channel(2)
    client.call(2, spec.QueueDelete("q"), spec.QueueDeleteOk)
    client.send(1, spec.TxCommit())
    assert returned(client) == [(key, body) for key, _, body in SOME[:5]]


def test_those_without_a_queue_are_dropped_or_returned() -> None:
    _, client = bound("own.0.#")
    publish(client, *SOME[:8], mandatory=True)
    assert returned(client) == [(key, body) for key, _, body in SOME[1:7]]
    assert deliveries(client) == [SOME[0], SOME[7]]


@pytest.mark.parametrize("routing_key", [None, "fixed"])
def test_dead_letters_have_their_routing_keys_and_history(routing_key: str | None) -> None:
    arguments: FieldTable = {"x-dead-letter-exchange": "amq.topic", "x-message-ttl": 1}
    if routing_key is not None:
        arguments["x-dead-letter-routing-key"] = routing_key
    server, client = pair()
    queue(client, "q", arguments)
    client.call(1, spec.QueueBind("q", "amq.direct", "k0"), spec.QueueBindOk)
    client.call(1, spec.QueueBind("q", "amq.direct", "k1"), spec.QueueBindOk)
    queue(client, "dead")
    bind(client, "dead", "#")
    sent = [(f"k{n % 2}", message(n)[1], b"%d" % n) for n in range(6)]
    client.send_bytes(b"".join(frames(each, exchange="amq.direct") for each in sent))
    assert keyed_entries(server) == 5
    server.after(5)
    found = deliveries(client, "dead")
    assert [(key, body) for key, _, body in found] == [(routing_key or key, body) for key, _, body in sent]
    for (key, before, _), (_, after, _) in zip(sent, found, strict=True):
        death = only_death(after)
        assert (death["routing-keys"], death["exchange"], death["queue"]) == ([key], "amq.direct", "q")
        assert Properties.decode(after).message_id == Properties.decode(before).message_id


@pytest.mark.rule("ORD-5")
def test_durable_ones_survive_a_restart() -> None:
    storage = MemoryStorage(random.Random(1))
    client = SimClient(SimServer(storage))
    client.open_channel(1)
    queue(client)
    bind(client, "q", "own.#")
    publish(client, *SOME)
    client = SimClient(SimServer(storage))
    client.open_channel(1)
    assert deliveries(client) == list(SOME)


def test_a_limit_in_bytes_counts_bodies_only() -> None:
    server, client = bound(arguments={"x-max-length-bytes": 10})
    publish(client, *SOME[:10])
    assert keyed_entries(server) == 0
    assert client.count(1, "q") == 10


def test_a_missing_exchange_is_refused_after_the_messages_before_it() -> None:
    server, client = bound()
    client.send_bytes(b"".join([*(frames(each) for each in SOME[:5]), frames(SOME[5], exchange="nowhere")]))
    assert [code for code, _ in server.faults] == [codes.NOT_FOUND]
    client.expect(1, spec.ChannelClose)
    client.open_channel(2)
    assert client.count(2, "q") == 5


def test_a_key_without_permission_is_refused_after_the_messages_before_it() -> None:
    server, client = bound()
    server.broker.access.set_topic_permission("guest", "/", "amq.topic", "own\\.[0-3].*", ".*")
    publish(client, *SOME[:8])
    assert [code for code, _ in server.faults] == [codes.ACCESS_REFUSED]
    client.expect(1, spec.ChannelClose)
    client.open_channel(2)
    assert client.count(2, "q") == 4


@pytest.mark.parametrize("more", ["", ".and.a.longer.key.than.the.shortest.content.of.a.message"])
def test_they_may_be_cut_anywhere(more: str) -> None:
    sent = [(key + more, props, body) for key, props, body in SOME[:6]]
    whole = [frames(each) for each in sent]
    first, octets = b"".join(whole[:2]), b"".join(whole[2:])
    for cut in range(len(octets)):
        _, client = bound()
        for piece in (first, octets[:cut], octets[cut:]):
            client.send_bytes(piece)
        assert deliveries(client) == sent, cut


some_messages = st.lists(
    st.tuples(st.sampled_from(["", "q", "q", "own.é", "other"]), lists, st.binary(max_size=20)), max_size=12
)


@given(some_messages, st.data())
def test_however_they_are_read_the_same_messages_arrive(some: list[Sent], data: st.DataObject) -> None:
    whole = [frames(each, exchange="amq.fanout") for each in some]
    octets = b"".join(whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=4)))
    pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    assert _received(pieces) == _received(whole)


def _received(pieces: list[bytes]) -> tuple[list[tuple[str, bytes, bytes]], list[tuple[int, str]]]:
    server, client = consuming()
    client.call(1, spec.QueueBind("q", "amq.fanout", ""), spec.QueueBindOk)
    for piece in pieces:
        if not client.closed:
            client.send_bytes(piece)
    found = [
        (each.method.routing_key, each.header, each.body)
        for each in client.deliveries()
        if isinstance(each.method, spec.BasicDeliver)
    ]
    return found, server.faults
