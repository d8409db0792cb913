"""The queue and exchange classes as a client sees them."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.table import FieldTable
from tests.harness.client import SimClient
from tests.harness.frames import publish_frames
from tests.unit.wire.amqp091.clients import PERSISTENT, bodies, fails_channel, fails_connection, pair, server


class TestDeclare:
    def test_the_server_generates_names(self) -> None:
        _, client = pair()
        answer = client.call(1, spec.QueueDeclare(""), spec.QueueDeclareOk)
        assert answer.queue.startswith("amq.gen-")
        assert (answer.message_count, answer.consumer_count) == (0, 0)
        client.send(1, spec.QueueBind("", "amq.topic", "k"), spec.QueuePurge(""), spec.BasicGet(""))
        client.expect(1, spec.QueueBindOk)
        client.expect(1, spec.QueuePurgeOk)
        client.expect(1, spec.BasicGetEmpty)

    def test_an_empty_name_before_any_declaration_is_refused(self) -> None:
        _, client = pair()
        client.send(1, spec.BasicGet(""))
        fails_channel(client, 1, codes.NOT_FOUND, "no previously declared queue")

    def test_a_reserved_name_is_refused(self) -> None:
        _, client = pair()
        client.send(1, spec.QueueDeclare("amq.mine"))
        fails_channel(client, 1, codes.ACCESS_REFUSED, "reserved prefix")

    def test_a_passive_declaration_returns_counts(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", b"a", b"b")
        client.call(1, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
        client.publish(1, "q", b"c")
        assert len(client.deliveries()) == 3
        answer = client.call(1, spec.QueueDeclare("q", passive=True), spec.QueueDeclareOk)
        assert (answer.queue, answer.message_count, answer.consumer_count) == ("q", 0, 1)
        client.send(1, spec.QueueDeclare("other", passive=True))
        fails_channel(client, 1, codes.NOT_FOUND, "no queue 'other' in vhost '/'")

    def test_messages_over_the_limit_are_not_counted(self) -> None:
        _, client = pair()
        client.call(1, spec.QueueDeclare("q", arguments={"x-max-length": 1}), spec.QueueDeclareOk)
        look = method_frame(1, spec.QueueDeclare("q", passive=True))
        client.send_bytes(
            b"".join(publish_frames(1, spec.BasicPublish("", "q"), PERSISTENT, b"x") for _ in "abc") + look
        )
        assert client.expect(1, spec.QueueDeclareOk).message_count == 1

    @pytest.mark.rule("EXC-2")
    @pytest.mark.parametrize(
        "method",
        [
            spec.QueueDeclare("q", exclusive=True),
            spec.QueueDeclare("q", passive=True),
            spec.QueueBind("q", "amq.direct", "k"),
            spec.QueueUnbind("q", "amq.direct", "k"),
            spec.QueuePurge("q"),
            spec.QueueDelete("q"),
            spec.BasicConsume("q", "t"),
            spec.BasicGet("q"),
        ],
        ids=lambda method: method.NAME,
    )
    def test_another_connections_exclusive_queue_is_refused(self, method: Method) -> None:
        made, client = pair()
        client.declare(1, "q", exclusive=True)
        other = SimClient(made)
        other.open_channel(1)
        other.send(1, method)
        fails_channel(other, 1, codes.RESOURCE_LOCKED, "cannot obtain exclusive access to locked queue 'q'")

    @pytest.mark.rule("EXC-1")
    def test_another_connections_exclusive_queue_can_be_published_to(self) -> None:
        made, client = pair()
        client.declare(1, "q", exclusive=True)
        other = SimClient(made)
        other.open_channel(1)
        other.publish(1, "q", b"x")
        assert bodies(made) == [b"x"]

    def test_no_wait_suppresses_the_answers(self) -> None:
        _, client = pair()
        client.send(
            1,
            spec.QueueDeclare("q", no_wait=True),
            spec.ExchangeDeclare("x", "topic", no_wait=True),
            spec.QueueBind("q", "x", "#", no_wait=True),
            spec.ExchangeBind("x", "amq.fanout", "", no_wait=True),
            spec.ExchangeUnbind("x", "amq.fanout", "", no_wait=True),
            spec.QueuePurge("q", no_wait=True),
            spec.ExchangeDelete("x", no_wait=True),
            spec.QueueDelete("q", no_wait=True),
        )
        assert not client.inbox

    @pytest.mark.rule("DUR-1")
    def test_durable_declarations_are_answered_once_they_are_on_disk(self) -> None:
        made, client = pair()
        client.send(1, spec.QueueDeclare("q", durable=True), disk=False)
        assert not client.inbox
        made.run_disk()
        client.expect(1, spec.QueueDeclareOk)
        client.send(1, spec.QueueDeclare("passing"), disk=False)
        client.expect(1, spec.QueueDeclareOk)


class TestPermissions:
    def test_generated_names_require_configure_permission(self) -> None:
        made = server(users=("guest", "reader"))
        access = made.broker.access
        made.broker.directory.record_access(access.set_permission("reader", "/", "^mine", ".*", ".*"))
        client = SimClient(made, user="reader")
        client.open_channel(1)
        client.declare(1, "mine")
        client.send(1, spec.QueueDeclare(""))
        fails_channel(client, 1, codes.ACCESS_REFUSED, "amq.gen-")
        made.broker.directory.record_access(access.set_permission("reader", "/", r"^(mine|amq\.gen-)", "^$", ".*"))
        client.open_channel(1)
        client.call(1, spec.QueueDeclare(""), spec.QueueDeclareOk)
        client.send(1, spec.QueueDeclare("", arguments={"x-dead-letter-exchange": "amq.fanout"}))
        fails_channel(client, 1, codes.ACCESS_REFUSED, "exchange 'amq.fanout'")

    @pytest.mark.parametrize(
        ("method", "what"),
        [
            (spec.QueueDeclare("q"), "queue 'q'"),
            (spec.QueueDelete("q"), "queue 'q'"),
            (spec.ExchangeDeclare("x", "topic"), "exchange 'x'"),
            (spec.ExchangeDelete("x"), "exchange 'x'"),
            (spec.QueueBind("q", "amq.topic", "k"), "queue 'q'"),
            (spec.QueueUnbind("q", "amq.topic", "k"), "queue 'q'"),
            (spec.ExchangeBind("amq.topic", "amq.fanout", "k"), "exchange 'amq.topic'"),
            (spec.ExchangeUnbind("amq.topic", "amq.fanout", "k"), "exchange 'amq.topic'"),
            (spec.QueuePurge("q"), "queue 'q'"),
            (spec.BasicConsume("q", "t"), "queue 'q'"),
            (spec.BasicGet("q"), "queue 'q'"),
        ],
        ids=lambda value: value.NAME if isinstance(value, Method) else "",
    )
    def test_every_method_requires_permission(self, method: Method, what: str) -> None:
        made = server(users=("guest", "nobody"))
        made.broker.directory.record_access(made.broker.access.set_permission("nobody", "/", "^$", "^$", "^$"))
        owner = SimClient(made)
        owner.open_channel(1)
        owner.declare(1, "q")
        client = SimClient(made, user="nobody")
        client.open_channel(1)
        client.send(1, method)
        fails_channel(client, 1, codes.ACCESS_REFUSED, f"access to {what}", "refused for user 'nobody'")


class TestQueues:
    def test_deleting_and_purging_return_the_number_of_messages(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", *[b"x"] * 5)
        assert client.call(1, spec.QueuePurge("q"), spec.QueuePurgeOk).message_count == 5
        client.publish(1, "q", *[b"x"] * 3)
        assert client.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk).message_count == 3
        assert client.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk).message_count == 0

    def test_deletion_can_require_an_empty_or_unused_queue(self) -> None:
        _, client = pair()
        client.open_channel(2)
        client.declare(1, "q")
        client.publish(1, "q", b"x")
        client.send(2, spec.QueueDelete("q", if_empty=True))
        fails_channel(client, 2, codes.PRECONDITION_FAILED, "queue 'q' in vhost '/' not empty")
        client.call(1, spec.BasicConsume("q", "t", no_ack=True), spec.BasicConsumeOk)
        assert client.bodies() == [b"x"]
        client.open_channel(2)
        client.send(2, spec.QueueDelete("q", if_unused=True))
        fails_channel(client, 2, codes.PRECONDITION_FAILED, "queue 'q' in vhost '/' in use")

    def test_consumers_are_cancelled_when_their_queue_is_deleted(self) -> None:
        made, client = pair()
        deaf = SimClient(made)
        deaf.open_channel(1)
        deaf.port.endpoint.cancel_notify = False
        client.declare(1, "q")
        for one in (client, deaf):
            one.call(1, spec.BasicConsume("q", "tag"), spec.BasicConsumeOk)
        client.send(1, spec.QueueDelete("q"))
        client.expect(1, spec.QueueDeleteOk)
        assert client.expect(1, spec.BasicCancel).consumer_tag == "tag"
        deaf.collect()
        assert not deaf.inbox
        client.call(1, spec.BasicCancel("tag"), spec.BasicCancelOk)

    def test_purging_a_stream_is_refused(self) -> None:
        _, client = pair()
        client.declare(1, "s", arguments={"x-queue-type": "stream"})
        client.send(1, spec.QueuePurge("s"))
        fails_connection(client, codes.NOT_IMPLEMENTED, "stream")

    def test_an_empty_key_for_an_empty_queue_name_means_the_queues_name(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.call(1, spec.QueueBind("", "amq.direct", ""), spec.QueueBindOk)
        client.publish(1, "q", b"x", exchange="amq.direct")
        assert bodies(made) == [b"x"]
        client.call(1, spec.QueueUnbind("", "amq.direct", ""), spec.QueueUnbindOk)
        client.publish(1, "q", b"y", exchange="amq.direct")
        assert bodies(made) == [b"x"]

    def test_removing_a_missing_binding_does_nothing(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        for method in (
            spec.QueueUnbind("q", "amq.direct", "k"),
            spec.QueueUnbind("q", "nowhere", "k"),
            spec.QueueUnbind("nothing", "amq.direct", "k"),
        ):
            client.call(1, method, spec.QueueUnbindOk)


class TestExchanges:
    def test_invalid_exchange_methods_close_the_channel(self) -> None:
        _, client = pair()
        for method, code in (
            (spec.ExchangeDeclare("", "direct"), codes.ACCESS_REFUSED),
            (spec.ExchangeDeclare("", "direct", True), codes.ACCESS_REFUSED),
            (spec.ExchangeDeclare("amq.mine", "direct"), codes.ACCESS_REFUSED),
            (spec.ExchangeDeclare("amq.direct", "topic"), codes.PRECONDITION_FAILED),
            (spec.ExchangeDeclare("nowhere", "topic", True), codes.NOT_FOUND),
            (spec.ExchangeDelete("amq.direct"), codes.ACCESS_REFUSED),
            (spec.ExchangeBind("amq.direct", "nowhere", "k"), codes.NOT_FOUND),
            (spec.ExchangeBind("nowhere", "amq.direct", "k"), codes.NOT_FOUND),
        ):
            client.send(1, method)
            closed = fails_channel(client, 1, code)
            assert (closed.class_id, closed.method_id) == (method.CLASS_ID, method.METHOD_ID)
            client.open_channel(1)

    def test_an_unknown_exchange_type_closes_the_connection(self) -> None:
        _, client = pair()
        client.send(1, spec.ExchangeDeclare("x", "x-unheard-of"))
        fails_connection(client, codes.COMMAND_INVALID, "unknown exchange type 'x-unheard-of'")

    def test_publishing_to_an_internal_exchange_is_refused(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.call(1, spec.ExchangeDeclare("inner", "fanout", internal=True), spec.ExchangeDeclareOk)
        client.call(1, spec.QueueBind("q", "inner", ""), spec.QueueBindOk)
        client.call(1, spec.ExchangeBind("inner", "amq.fanout", ""), spec.ExchangeBindOk)
        client.publish(1, "", b"x", exchange="amq.fanout")
        assert bodies(made) == [b"x"]
        client.publish(1, "", b"y", exchange="inner")
        fails_channel(client, 1, codes.ACCESS_REFUSED, "internal exchange 'inner'")

    def test_an_alternate_exchange_gets_unrouted_messages(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.call(1, spec.QueueBind("q", "amq.fanout", ""), spec.QueueBindOk)
        arguments: FieldTable = {"alternate-exchange": "amq.fanout"}
        client.call(1, spec.ExchangeDeclare("x", "direct", arguments=arguments), spec.ExchangeDeclareOk)
        client.publish(1, "nobody", b"x", exchange="x", mandatory=True)
        assert bodies(made) == [b"x"]
        assert not client.inbox

    def test_an_exchange_can_be_deleted(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.call(1, spec.ExchangeDeclare("x", "direct"), spec.ExchangeDeclareOk)
        client.call(1, spec.QueueBind("q", "x", "k"), spec.QueueBindOk)
        client.send(1, spec.ExchangeDelete("x", True))
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "in use")
        client.open_channel(1)
        client.call(1, spec.ExchangeDelete("x"), spec.ExchangeDeleteOk)
        client.call(1, spec.ExchangeDelete("x"), spec.ExchangeDeleteOk)
        client.publish(1, "k", b"x", exchange="x")
        fails_channel(client, 1, codes.NOT_FOUND, "no exchange 'x' in vhost '/'")


@pytest.mark.rule("FAIR-3")
class TestGrowth:
    @pytest.mark.parametrize(
        "method",
        [
            spec.QueueDeclare("new", arguments={"x": "x" * 2000}),
            spec.QueueBind("q", "amq.topic", "k", arguments={"x": "x" * 2000}),
            spec.ExchangeDeclare("new", "direct", arguments={"x": "x" * 2000}),
            spec.ExchangeBind("amq.topic", "amq.direct", "k", arguments={"x": "x" * 2000}),
            spec.BasicConsume("q", "t", arguments={"x": "x" * 2000}),
        ],
    )
    def test_arguments_over_the_limit_close_the_channel(self, method: Method) -> None:
        made, client = pair(arguments=1500)
        client.declare(1, "q", arguments={"x-" + "y" * 100: "y" * 1000})
        client.send(1, method)
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "with its arguments, is larger than 1500 bytes")
        assert "new" not in made.broker.directory.vhosts["/"].queues

    def test_bindings_of_any_size_can_be_removed(self) -> None:
        made, client = pair(arguments=1500)
        arguments: FieldTable = {"x": "x" * 2000}
        client.declare(1, "q")
        made.broker.directory.bind_queue(made.broker.directory.vhosts["/"], "amq.topic", "q", "k", arguments)
        client.call(1, spec.QueueUnbind("q", "amq.topic", "k", arguments), spec.QueueUnbindOk)

    def test_a_declaration_while_memory_is_scarce_closes_the_channel_and_settling_goes_on(self) -> None:
        made, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", b"a")
        made.broker.engine.scarcity = "low on memory"
        client.declare(1, "q")
        assert client.get(1, "q") is not None
        client.send(1, spec.BasicAck(1))
        client.send(1, spec.QueueDeclare("new"))
        fails_channel(client, 1, codes.RESOURCE_ERROR, "no room for queue 'new'", "low on memory")
        client.open_channel(1)
        assert client.count(1, "q") == 0
        client.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk)


@pytest.mark.rule("FAIR-3")
def test_a_virtual_host_has_no_more_queues_than_its_limit() -> None:
    made, client = pair()
    client.declare(1, "q")
    made.broker.directory.record_access(made.broker.access.set_vhost_limits("/", None, 1))
    client.declare(1, "q")
    client.send(1, spec.QueueDeclare("new"))
    fails_channel(client, 1, codes.PRECONDITION_FAILED, "cannot declare queue 'new': queue limit in vhost '/' (1)")
    client.open_channel(1)
    client.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk)
    client.declare(1, "new")
