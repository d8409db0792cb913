"""When answers are given: what waits for the disk waits, and nothing else does."""

from __future__ import annotations

import random

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.harness.server import SimServer


def test_an_answer_for_what_is_on_disk_already_does_not_wait_for_a_sync() -> None:
    server = SimServer(MemoryStorage(random.Random(1)))
    first = SimClient(server)
    first.open_channel(1)
    first.declare(1, "q")
    later = SimClient(server)
    later.open_channel(1)
    later.send(1, spec.QueueDeclare("q", durable=True), disk=False)
    later.expect(1, spec.QueueDeclareOk)
