"""The class `tx`."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.codec.spec import QueueDeclare, TxCommit, TxRollback, TxSelect
from escrowmq.wire.amqp010.codec.structs import Command
from tests.unit.wire.amqp010.branches import work
from tests.unit.wire.amqp010.clients import Client
from tests.unit.wire.amqp091.clients import bodies


def transactional(*, large: bool = False) -> Client:
    """Return a client with a transactional session and a queue."""
    client = Client()
    client.do(QueueDeclare("q", durable=True))
    client.do(TxSelect())
    if large:
        client.server.broker.transactions.large = 0
    return client


@pytest.mark.rule("TX-1")
@pytest.mark.parametrize("command", [TxCommit(), TxRollback()], ids=repr)
def test_an_outcome_requires_select(command: Command) -> None:
    Client().refused(command, 409)


@pytest.mark.rule("TX-4", "TX-5", "TX-12")
@pytest.mark.parametrize("large", [False, True])
def test_a_transaction_follows_each_that_ends(large: bool) -> None:
    client = transactional(large=large)
    work(client, b"1")
    work(client, b"2")
    assert bodies(client.server) == []
    client.do(TxCommit())
    assert bodies(client.server) == [b"1", b"2"]
    work(client, b"dropped")
    client.do(TxRollback())
    work(client, b"3")
    client.do(TxCommit())
    client.do(TxCommit())
    assert bodies(client.server) == [b"1", b"2", b"3"]


@pytest.mark.rule("TX-5", "DUR-3")
@pytest.mark.parametrize("large", [False, True])
def test_a_commit_is_complete_when_it_is_on_disk(large: bool) -> None:
    client = transactional(large=large)
    work(client, b"1")
    number = client.command(TxCommit(), disk=False)
    assert client.idle()
    client.server.run_disk()
    client.collect()
    client.completes(number)


@pytest.mark.rule("TX-13")
def test_a_commit_that_a_full_queue_refuses_ends_the_session() -> None:
    client = transactional()
    client.do(QueueDeclare("full", arguments={"qpid.max_count": 1}))
    work(client, b"1")
    work(client, b"1", b"2", queue="full")
    client.refused(TxCommit(), 506)
    assert bodies(client.server) == bodies(client.server, "full") == []
