"""What the tests of transactions beside this file share: work in a session's transaction."""

from __future__ import annotations

from escrowmq.core.branches.branch import Publication
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp010.codec.spec import QueueDeclare, Xid
from tests.unit.wire.amqp010.clients import Client, SharingServer
from tests.unit.wire.amqp091.clients import bodies

X = Xid(1, b"g", b"b")
Y = Xid(1, b"g", b"other")


def work(client: Client, *bodies: bytes, queue: str = "q") -> None:
    """Publish messages in the transaction of the session on channel 1."""
    made = client.server
    branch = client.port.endpoint.sessions[1].branch
    assert branch is not None
    queues = (made.broker.directory.vhost("/").queue(queue),)
    made.broker.transactions.enlist(branch, Publication(Envelope("", queue, durable=True), list(bodies), queues))


MANY = 60


def much_work(client: Client) -> None:
    """Publish a message to each of MANY queues in the transaction, which is large from now on and carried out in small
    pieces.
    """
    for number in range(MANY):
        client.do(QueueDeclare(f"q{number}", durable=True))
        work(client, b"work", queue=f"q{number}")
    client.server.broker.transactions.large = 0
    client.server.broker.engine.requests.turn = 1


def done(made: SharingServer) -> list[bytes]:
    """Return the messages of these queues."""
    return [body for number in range(MANY) for body in bodies(made, f"q{number}")]


def later(made: SharingServer, ms: int) -> None:
    """Let time pass."""
    made.now += ms
    made.end_turn()
    made.run_disk()
