"""The class `queue`."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp010.codec.spec import (
    ExchangeBind,
    ExchangeDeclare,
    ExecutionResult,
    MessageCancel,
    MessageSubscribe,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueQuery,
    QueueQueryResult,
    SessionDetach,
    SessionDetached,
)
from escrowmq.wire.amqp010.codec.structs import Command
from tests.unit.wire.amqp010.clients import Client, SharingServer, server
from tests.unit.wire.amqp010.messaging import octets
from tests.unit.wire.amqp010.sessions import keeping, lose, resume
from tests.unit.wire.amqp091.clients import bodies


def publish(made: SharingServer, name: str, *contents: bytes) -> None:
    """Publish messages as another client would."""
    queue = made.broker.directory.vhost("/").queue(name)
    made.broker.engine.publish(Envelope("", name, durable=True), list(contents), (queue,))
    made.end_turn()
    made.run_disk()


def query(client: Client, name: str = "q") -> QueueQueryResult:
    found = client.do(QueueQuery(name))
    assert isinstance(found, QueueQueryResult)
    return found


def test_a_queue_is_declared_and_described() -> None:
    client = Client()
    client.do(ExchangeDeclare("dead", "fanout"))
    client.do(QueueDeclare("q", "dead", durable=True, arguments={"qpid.max_count": 5}))
    publish(client.server, "q", b"1", b"2")
    found = query(client)
    assert (found.queue, found.alternate_exchange, found.durable, found.exclusive) == ("q", "dead", True, False)
    assert (found.message_count, found.subscriber_count) == (2, 0)
    assert found.arguments is not None
    assert found.arguments["x-max-length"] == 5
    assert query(client, "none") == QueueQueryResult()


def test_a_queue_that_exists_is_taken_as_it_is() -> None:
    client = Client()
    client.do(QueueDeclare("q", durable=True))
    client.do(QueueDeclare("q", auto_delete=True, arguments={"x-max-length": 5}))
    found = query(client)
    assert (found.durable, found.auto_delete, found.arguments) == (True, False, {})


def test_passive_declares_nothing() -> None:
    client = Client()
    client.refused(QueueDeclare("q", passive=True), 404)
    client.attach(1)
    client.do(QueueDeclare("q"))
    client.do(QueueDeclare("q", passive=True))


@pytest.mark.rule("DUR-1")
@pytest.mark.parametrize("command", [QueueDeclare("q"), ExchangeDeclare("x", "fanout")], ids=lambda each: each.NAME)
def test_what_another_client_has_declared_is_confirmed_when_it_is_on_disk(command: Command) -> None:
    client = Client()
    other = Client(client.server, attaches=False)
    other.attach(1, b"another")
    client.command(QueueDeclare("q", durable=True), disk=False)
    client.command(ExchangeDeclare("x", "fanout", durable=True), disk=False)
    number = other.command(command, disk=False)
    assert other.idle()
    other.send_bytes(b"")
    other.completes(number)


@pytest.mark.rule("DUR-1")
def test_the_cancellation_that_deletes_a_durable_queue_is_confirmed_when_it_is_on_disk() -> None:
    client = Client()
    client.do(QueueDeclare("q", durable=True, auto_delete=True))
    client.do(MessageSubscribe("q", "d"))
    number = client.command(MessageCancel("d"), disk=False)
    assert client.idle()
    client.send_bytes(b"")
    client.completes(number)
    assert query(client) == QueueQueryResult()


@pytest.mark.rule("DUR-1")
def test_a_durable_queue_is_confirmed_when_it_is_on_disk() -> None:
    client = Client()
    number = client.command(QueueDeclare("q", durable=True), disk=False)
    assert client.idle()
    client.server.run_disk()
    client.collect()
    client.completes(number)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (QueueDeclare(""), 542),
        (QueueDeclare(None), 542),
        (QueueDeclare("amq.mine"), 530),
        (QueueDeclare("q", "none"), 404),
        (QueueDeclare("q", arguments={"x-max-length": -1}), 406),
        (QueueDelete(""), 542),
        (QueueDelete("none"), 404),
        (QueueDelete("full", if_empty=True), 406),
        (QueuePurge(None), 542),
        (QueuePurge("none"), 404),
        (QueuePurge("stream"), 540),
        (QueueQuery(""), 542),
    ],
)
def test_faults_have_the_codes_of_the_specification(command: Command, code: int) -> None:
    client = Client()
    client.do(QueueDeclare("full"))
    client.do(QueueDeclare("stream", durable=True, arguments={"x-queue-type": "stream"}))
    publish(client.server, "full", b"1")
    client.refused(command, code)


def test_a_queue_is_purged_and_deleted() -> None:
    client = Client()
    client.do(QueueDeclare("q", durable=True))
    client.do(ExchangeBind("q", "amq.direct", "k"))
    publish(client.server, "q", b"1", b"2")
    client.do(QueuePurge("q"))
    assert query(client).message_count == 0
    client.do(QueueDelete("q", if_unused=True, if_empty=True))
    assert query(client) == QueueQueryResult()


@pytest.mark.rule("EXC-1", "EXC-2")
def test_an_exclusive_queue_that_is_auto_delete_ends_with_its_connection() -> None:
    made = server()
    mine, other = Client(made), Client(made, attaches=False)
    other.attach(1, b"other")
    mine.do(QueueDeclare("q", exclusive=True, auto_delete=True))
    other.refused(QueueDeclare("q", passive=True, exclusive=True), 405)
    other.attach(1, b"other")
    made.lose(mine.port)
    made.end_turn()
    assert query(other) == QueueQueryResult()


@pytest.mark.rule("EXC-2")
@pytest.mark.parametrize(
    "command",
    [
        QueueDeclare("q"),
        QueueDeclare("q", exclusive=True),
        QueueDelete("q"),
        QueuePurge("q"),
        ExchangeBind("q", "amq.direct", "k"),
    ],
    ids=repr,
)
def test_another_exclusive_queue_is_locked_until_its_session_ends(command: Command) -> None:
    made = server()
    mine, other = Client(made), Client(made, attaches=False)
    other.attach(1, b"other")
    mine.do(QueueDeclare("q", durable=True, exclusive=True))
    mine.do(QueueDeclare("q", durable=True, exclusive=True))
    other.refused(command, 405)
    mine.control(SessionDetach(b"session 1"))
    other.attach(1, b"other")
    other.do(command)


@pytest.mark.parametrize("auto_delete", [False, True])
def test_every_session_may_ask_whether_an_exclusive_queue_exists(auto_delete: bool) -> None:
    client = Client()
    client.attach(2, b"other")
    client.do(QueueDeclare("q", exclusive=True, auto_delete=auto_delete))
    client.do(QueueDeclare("q", passive=True), channel=2)
    client.refused(QueueDeclare("q", passive=True, exclusive=True), 405, channel=2)


@pytest.mark.rule("EXC-1", "EXC-2")
@pytest.mark.parametrize("auto_delete", [False, True])
def test_an_exclusive_queue_belongs_to_one_session_of_its_connection(auto_delete: bool) -> None:
    client = Client()
    client.attach(2, b"other")
    client.do(QueueDeclare("q", exclusive=True, auto_delete=auto_delete))
    client.refused(QueueDeclare("q", exclusive=True, auto_delete=auto_delete), 405, channel=2)
    client.attach(2, b"other")
    client.control(SessionDetach(b"session 1"))
    client.expect(SessionDetached)
    assert (client.do(QueueQuery("q"), channel=2) == QueueQueryResult()) == auto_delete
    client.do(QueueDeclare("q", exclusive=True, auto_delete=auto_delete), channel=2)


@pytest.mark.rule("EXC-2")
@pytest.mark.parametrize("auto_delete", [False, True])
def test_an_exclusive_queue_stays_with_a_session_that_is_kept(auto_delete: bool) -> None:
    made = server()
    mine, other = keeping(made), Client(made, attaches=False)
    other.attach(1, b"other")
    mine.do(QueueDeclare("q", exclusive=True, auto_delete=auto_delete))
    lose(mine)
    other.refused(QueueDelete("q"), 405)
    again = resume(made, sent=1)
    again.do(QueueDelete("q"))


@pytest.mark.rule("EXC-2")
def test_a_queue_that_was_locked_is_free_after_its_deletion() -> None:
    made = server()
    mine, other = Client(made), Client(made, attaches=False)
    other.attach(1, b"other")
    mine.do(QueueDeclare("q", exclusive=True))
    mine.do(QueueDelete("q"))
    other.do(QueueDeclare("q", exclusive=True))


def test_the_result_comes_before_the_completion() -> None:
    client = Client()
    number = client.command(QueueQuery("q"))
    assert client.expect(ExecutionResult).command_id == number
    client.completes(number)


def dead_lettering(*, back: bool = False) -> Client:
    """A client, a queue with the alternate exchange "dead", and the queue "letters" there, or the queue itself."""
    client = Client()
    client.do(ExchangeDeclare("dead", "fanout"))
    client.do(QueueDeclare("q", durable=True, alternate_exchange="dead"))
    client.do(QueueDeclare("letters", durable=True))
    client.do(ExchangeBind("letters", "dead", ""))
    if back:
        client.do(ExchangeBind("q", "dead", ""))
    client.send_bytes(b"".join([octets(client, b"%d" % number, delivery_mode=2) for number in range(5)]))
    client.inbox.clear()
    return client


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("budget", [1, 1000])
def test_the_messages_of_a_deleted_queue_go_to_its_alternate_exchange(back: bool, budget: int) -> None:
    client = dead_lettering(back=back)
    client.server.broker.engine.requests.turn = budget
    client.do(QueueDelete("q"))
    assert bodies(client.server, "letters") == [b"0", b"1", b"2", b"3", b"4"]
    assert "q" not in client.server.broker.directory.vhost("/").queues


@pytest.mark.parametrize("command", [QueueDelete("q", if_empty=True), QueueDelete("q", if_unused=True)], ids=repr)
def test_a_queue_that_is_not_deleted_keeps_its_messages(command: Command) -> None:
    client = dead_lettering()
    client.do(MessageSubscribe("q", "d", accept_mode=0, acquire_mode=0))
    client.refused(command, 406)
    assert len(bodies(client.server, "q")) == 5
    assert bodies(client.server, "letters") == []


def test_a_passive_declaration_may_insist_on_exclusive_use() -> None:
    client = Client()
    client.do(QueueDeclare("own", durable=True, exclusive=True))
    client.do(QueueDeclare("temporary", exclusive=True, auto_delete=True))
    client.do(QueueDeclare("shared"))
    client.do(QueueDeclare("own", passive=True, exclusive=True))
    client.do(QueueDeclare("temporary", passive=True, exclusive=True))
    client.refused(QueueDeclare("shared", passive=True, exclusive=True), 405)
