"""Lifetime policies of dynamic nodes."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Attach, Detach, Disposition
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.termini import (
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Source,
    Target,
)
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import NOT_FOUND
from escrowmq.wire.amqp10.lifetime import LOOK_MS
from tests.unit.wire.amqp10.clients import Client, Server, server

LIFETIME = Symbol("lifetime-policy")


class Scene:
    """A client that has created a queue with this policy, on the link with handle 0."""

    def __init__(self, policy: Any) -> None:
        self.server: Server = server()
        self.client = Client(self.server)
        target = self.client.sender(
            None, target=Target(dynamic=True, dynamic_node_properties={LIFETIME: policy})
        ).target
        assert isinstance(target, Target)
        assert target.dynamic_node_properties == {LIFETIME: policy}
        self.address = target.address
        assert self.address is not None

    def post(self) -> None:
        self.client.post(0)
        assert self.client.outcome(0).state == Accepted()

    def detach(self, handle: int) -> None:
        self.client.send(0, Detach(handle=handle, closed=True))
        self.client.expect(Detach)

    def exists(self) -> bool:
        """Return whether the queue is still there after the time in which it would be deleted."""
        self.server.after(LOOK_MS + 1)
        return bool(self.server.broker.directory.vhost("/").queues)

    def consume(self) -> None:
        """Take the only message, and leave."""
        self.client.receiver(self.address, 1, credit=1)
        ((number, _),) = self.client.deliveries()
        self.client.send(0, Disposition(role=RECEIVER, first=number, settled=True, state=Accepted()))
        self.detach(1)


def test_a_queue_lives_until_no_link_is_left() -> None:
    scene = Scene(DeleteOnNoLinks())
    scene.post()
    assert scene.exists()
    other = Client(scene.server, container="other")
    other.receiver(scene.address, 1)
    scene.detach(0)
    assert scene.exists()
    other.send(0, Detach(handle=1, closed=True))
    assert not scene.exists()


def test_a_link_that_is_lost_is_no_link() -> None:
    scene = Scene(DeleteOnNoLinks())
    scene.server.lose(scene.client.port)
    assert not scene.exists()


def test_a_queue_lives_until_its_last_message_is_settled() -> None:
    scene = Scene(DeleteOnNoMessages())
    assert scene.exists()
    scene.post()
    scene.detach(0)
    assert scene.exists()
    scene.consume()
    assert not scene.exists()


@pytest.mark.parametrize("messages_first", [False, True])
def test_a_queue_lives_until_neither_links_nor_messages_are_left(messages_first: bool) -> None:
    scene = Scene(DeleteOnNoLinksOrMessages())
    scene.post()
    for consumes in (messages_first, not messages_first):
        assert scene.exists()
        if consumes:
            scene.consume()
        else:
            scene.detach(0)
    assert not scene.exists()


def test_a_queue_that_is_deleted_earlier_is_forgotten() -> None:
    scene = Scene(DeleteOnNoLinks())
    directory = scene.server.broker.directory
    (queue,) = directory.vhost("/").queues.values()
    directory.delete_queue(queue)
    assert not scene.exists()
    scene.client.inbox.clear()
    other = Client(scene.server, container="other")
    other.refused(Attach("l", 3, RECEIVER, source=Source(scene.address), target=Target()), NOT_FOUND)
