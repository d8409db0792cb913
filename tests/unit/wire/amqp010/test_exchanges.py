"""The class `exchange`."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.codec.spec import (
    ExchangeBind,
    ExchangeBound,
    ExchangeBoundResult,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExchangeQueryResult,
    ExchangeUnbind,
    QueueDeclare,
)
from escrowmq.wire.amqp010.codec.structs import Command
from tests.unit.wire.amqp010.clients import Client


def topology() -> Client:
    """A client, with two queues, of which `q` is bound to `x` twice."""
    client = Client()
    client.do(QueueDeclare("q", durable=True))
    client.do(QueueDeclare("unbound"))
    client.do(ExchangeDeclare("x", "topic", durable=True))
    client.do(ExchangeBind("q", "x", "k"))
    client.do(ExchangeBind("q", "x", "a.*", {"comment": "one"}))
    return client


@pytest.mark.parametrize("name", ["amq.direct", "amq.topic", "amq.fanout", "amq.match", ""])
def test_the_instances_that_the_specification_requires_exist(name: str) -> None:
    found = Client().do(ExchangeQuery(name))
    assert not found.not_found
    assert found.durable
    assert found.type in ("direct", "topic", "fanout", "headers")


def test_an_exchange_is_declared_described_and_deleted() -> None:
    client = Client()
    client.do(ExchangeDeclare("other", "fanout"))
    client.do(ExchangeDeclare("x", "direct", "other", durable=True))
    assert client.do(ExchangeQuery("x")) == ExchangeQueryResult(
        "direct", durable=True, arguments={"alternate-exchange": "other"}
    )
    client.do(ExchangeDelete("x", if_unused=True))
    assert client.do(ExchangeQuery("x")) == ExchangeQueryResult(not_found=True)


def test_only_type_and_alternate_of_an_exchange_that_exists_matter() -> None:
    client = topology()
    client.do(ExchangeDeclare("x", "topic", auto_delete=True, arguments={"comment": "other"}))
    client.do(ExchangeDeclare("amq.topic", "topic"))
    client.do(ExchangeDeclare("x", passive=True))
    assert client.do(ExchangeQuery("x")).durable


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (ExchangeDeclare("", "direct"), 542),
        (ExchangeDeclare("amq.mine", "direct"), 530),
        (ExchangeDeclare("y", "xml"), 404),
        (ExchangeDeclare("y", None), 404),
        (ExchangeDeclare("y", "direct", "none"), 404),
        (ExchangeDeclare("y", passive=True), 404),
        (ExchangeDeclare("x", "direct"), 530),
        (ExchangeDeclare("x", "topic", "amq.fanout"), 530),
        (ExchangeDelete(""), 542),
        (ExchangeDelete("none"), 404),
        (ExchangeDelete("amq.topic"), 530),
        (ExchangeDelete("x", if_unused=True), 406),
        (ExchangeBind("", "x", "k"), 542),
        (ExchangeBind("none", "x", "k"), 404),
        (ExchangeBind("q", "none", "k"), 404),
        (ExchangeBind("q", "", "k"), 542),
        (ExchangeUnbind("q", "x", "other"), 404),
        (ExchangeUnbind("none", "x", "k"), 404),
        (ExchangeUnbind("q", "none", "k"), 404),
        (ExchangeUnbind("q", "", "k"), 542),
    ],
    ids=repr,
)
def test_faults_have_the_codes_of_the_specification(command: Command, code: int) -> None:
    topology().refused(command, code)


def test_unbinding_ignores_arguments() -> None:
    client = topology()
    client.do(ExchangeUnbind("q", "x", "a.*"))
    assert client.do(ExchangeBound("x", "q", "a.*")).key_not_matched
    client.do(ExchangeUnbind("q", "x", "k"))
    client.do(ExchangeDelete("x", if_unused=True))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ExchangeBound("x", "q", "k"), ExchangeBoundResult()),
        (ExchangeBound("x", "q"), ExchangeBoundResult()),
        (ExchangeBound("x", None, "k"), ExchangeBoundResult()),
        (ExchangeBound("x", "q", "a.*", {"comment": "one"}), ExchangeBoundResult()),
        (ExchangeBound("x", "q", None, {"comment": "one"}), ExchangeBoundResult()),
        (ExchangeBound("x"), ExchangeBoundResult()),
        (ExchangeBound("none", "q"), ExchangeBoundResult(exchange_not_found=True)),
        (ExchangeBound("none", "none"), ExchangeBoundResult(exchange_not_found=True, queue_not_found=True)),
        (ExchangeBound("none"), ExchangeBoundResult(exchange_not_found=True)),
        (ExchangeBound("x", "none"), ExchangeBoundResult(queue_not_found=True)),
        (ExchangeBound("x", "unbound"), ExchangeBoundResult(queue_not_matched=True)),
        (ExchangeBound("x", "unbound", "k"), ExchangeBoundResult(queue_not_matched=True)),
        (ExchangeBound("x", "q", "other"), ExchangeBoundResult(key_not_matched=True)),
        (
            ExchangeBound("x", "unbound", "other", {"comment": "two"}),
            ExchangeBoundResult(queue_not_matched=True, key_not_matched=True, args_not_matched=True),
        ),
        (ExchangeBound("", "q"), ExchangeBoundResult()),
        (ExchangeBound(None, "q", "q"), ExchangeBoundResult()),
        (ExchangeBound("", None, "q"), ExchangeBoundResult()),
        (ExchangeBound("", "q", "unbound"), ExchangeBoundResult(queue_not_matched=True)),
        (ExchangeBound("", "q", "none"), ExchangeBoundResult(key_not_matched=True)),
    ],
    ids=repr,
)
def test_bound_says_what_does_not_match(asked: Command, expected: ExchangeBoundResult) -> None:
    assert topology().do(asked) == expected


@pytest.mark.rule("DUR-1")
def test_a_durable_binding_is_confirmed_when_it_is_on_disk() -> None:
    client = topology()
    number = client.command(ExchangeBind("q", "x", "new"), disk=False)
    assert client.idle()
    client.server.run_disk()
    client.collect()
    client.completes(number)


@pytest.mark.parametrize(
    "user",
    [QueueDeclare("q", alternate_exchange="dead"), ExchangeDeclare("e", "fanout", alternate_exchange="dead")],
    ids=["queue", "exchange"],
)
def test_an_alternate_exchange_cannot_be_deleted(user: Command) -> None:
    client = Client()
    client.do(ExchangeDeclare("dead", "fanout"))
    client.do(user)
    client.refused(ExchangeDelete("dead"), 530)
