"""An answer waits for the disk if its effects are not durable yet, and only then."""

from __future__ import annotations

import random

import pytest

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.harness.server import SimServer


def test_an_answer_about_durable_state_does_not_wait_for_a_sync() -> None:
    server = SimServer(MemoryStorage(random.Random(1)))
    first = SimClient(server)
    first.open_channel(1)
    first.declare(1, "q")
    later = SimClient(server)
    later.open_channel(1)
    later.send(1, spec.QueueDeclare("q", durable=True), disk=False)
    later.expect(1, spec.QueueDeclareOk)


@pytest.mark.rule("TX-8")
def test_a_commit_waits_for_the_durable_deletion_of_a_queue_that_it_has_settled_messages_on() -> None:
    storage = MemoryStorage(random.Random(1))
    server = SimServer(storage)
    client, other = SimClient(server), SimClient(server)
    client.open_channel(1, mode="tx")
    other.open_channel(1)
    other.declare(1, "q")
    other.publish(1, "q", b"settled")
    assert client.get(1, "q") is not None
    other.send(1, spec.QueueDelete("q"), disk=False)
    client.send(1, spec.BasicAck(1), spec.TxCommit(), disk=False)
    assert not client.inbox, "commit-ok was sent although a crash would bring the message back"
    server.run_disk()
    client.expect(1, spec.TxCommitOk)
