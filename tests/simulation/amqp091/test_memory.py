"""Clients use a connection in every way and abort it. No memory may be left, without the garbage collector."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator

import pytest

from escrowmq.core.branches.xid import Xid
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from tests.harness.client import PERSISTENT, SimClient, connect, login_frames
from tests.harness.frames import publish_frames
from tests.harness.memory import assert_nothing_is_left
from tests.harness.server import SimServer

ABORTED = 1000
KEPT = 300  # objects that may remain of all connections together, such as caches of a fixed size
LEFT_BYTES = ABORTED * 2048
"""Memory that may remain of all connections together. A connection once left 4 kB."""


def _idle(client: SimClient) -> None:
    """It has opened a channel, and closed another one."""
    client.open_channel(2)
    client.call(2, spec.ChannelClose(200, "bye"), spec.ChannelCloseOk)


def _uploading(client: SimClient) -> None:
    """It has sent half of a large body."""
    frames = publish_frames(1, spec.BasicPublish("", "q"), PERSISTENT, bytes(400_000))
    client.send_bytes(frames[:200_000])


def _confirming(client: SimClient) -> None:
    client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    client.publish(1, "q", b"a")
    client.publish(1, "q", b"b", b"c")


def _consuming(client: SimClient) -> None:
    """It has unsettled deliveries of a consumer that exists, of one that was cancelled, and of a get."""
    client.publish(1, "q", b"a", b"b")
    client.send(1, spec.BasicGet("q"))
    client.send(1, spec.BasicConsume("q", "t"))
    client.send(1, spec.BasicCancel("t"))
    client.publish(1, "q", b"c")
    client.send(1, spec.BasicConsume("q"))


def _not_reading(client: SimClient) -> None:
    """Its consumer has messages to get that it does not read."""
    client.port.endpoint.congested(2 << 20)
    client.send(1, spec.BasicConsume("q"))
    client.publish(1, "q", b"a")


def _in_a_transaction(client: SimClient) -> None:
    client.call(1, spec.TxSelect(), spec.TxSelectOk)
    client.publish(1, "q", b"a")
    client.call(1, spec.TxCommit(), spec.TxCommitOk)
    client.publish(1, "q", b"b")
    client.send(1, spec.BasicGet("q"), spec.BasicAck(1))


def _working_for_a_branch(client: SimClient) -> None:
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    client.call(1, spec.DtxDemarcationStart(Xid(1, b"g", b"b").encode()), spec.DtxDemarcationStartOk)
    client.publish(1, "q", b"a")


def _requesting(client: SimClient) -> None:
    """It has a queue for replies of its own, and the address for direct replies."""
    client.declare(1, "replies", durable=False, exclusive=True)
    client.call(1, spec.BasicConsume("amq.rabbitmq.reply-to", no_ack=True), spec.BasicConsumeOk)
    client.call(1, spec.BasicConsume("replies"), spec.BasicConsumeOk)
    client.publish(1, "replies", b"a")


def _in_error(client: SimClient) -> None:
    """The broker has closed its channel."""
    client.send(1, spec.BasicAck(77))


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.rule("FAIR-2")
class TestMemory:
    @pytest.mark.parametrize(
        "use",
        [
            _idle,
            _uploading,
            _confirming,
            _consuming,
            _not_reading,
            _in_a_transaction,
            _working_for_a_branch,
            _requesting,
            _in_error,
        ],
    )
    def test_nothing_is_left_of_aborted_connections_without_the_collector(
        self, use: Callable[[SimClient], None]
    ) -> None:
        made = SimServer(MemoryStorage(random.Random(1)))
        client = SimClient(made)
        client.open_channel(1)
        client.declare(1, "q")

        def once() -> None:
            other = SimClient(made)
            other.open_channel(1)
            use(other)
            other.lose()
            for _ in range(2):  # a branch that has lost its channel times out, and is forgotten some time after that
                made.now += 7_200_000
                made.end_turn()
            client.call(1, spec.QueuePurge("q"), spec.QueuePurgeOk)

        assert_nothing_is_left(once, ABORTED, KEPT, LEFT_BYTES)

    def test_nothing_is_left_of_logins_that_were_refused_or_never_finished(self) -> None:
        made = SimServer(MemoryStorage(random.Random(1)))

        def once(data: bytes) -> None:
            port = connect(made)
            made.receive(port, data)
            made.end_turn()
            made.lose(port)

        once(login_frames("nobody"))
        before = len(gc.get_objects())
        for _ in range(ABORTED):
            once(login_frames("nobody"))
            once(login_frames()[:30])
        assert len(gc.get_objects()) - before < KEPT
