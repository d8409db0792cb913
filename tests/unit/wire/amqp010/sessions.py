"""Sessions that are detached and attached again, for the tests."""

from __future__ import annotations

from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp010.codec.spec import (
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionExpected,
    SessionFlush,
    SessionRequestTimeout,
    SessionTimeout,
)
from tests.unit.wire.amqp010.clients import Client, SharingServer, server

NAME = b"session 1"


def keeping(made: SharingServer | None = None, seconds: int = 60, user: str = "guest") -> Client:
    """Return a client whose session has a timeout."""
    client = Client(made or server(), user)
    client.control(SessionRequestTimeout(seconds))
    assert client.expect(SessionTimeout).timeout == seconds
    return client


def lose(client: Client) -> SharingServer:
    """Lose the connection."""
    client.server.lose(client.port)
    client.server.end_turn()
    client.server.run_disk()
    return client.server


def resume(made: SharingServer, received: int = 0, *, channel: int = 1, force: bool = False, sent: int = 0) -> Client:
    """Attach the session again, for a client that has received so many commands and goes on with number `sent`."""
    client = Client(made, attaches=False)
    client.control(SessionAttach(NAME, force=force), channel)
    assert client.expect(SessionAttached).name == NAME
    assert client.expect(SessionFlush) == SessionFlush(True, True, True)
    if client.inbox:
        client.expect(SessionCompleted)
    client.control(SessionExpected(((received, received),)), channel)
    assert client.expect(SessionCommandPoint) == SessionCommandPoint(received, 0)
    client.sent[channel] = sent
    client.control(SessionCommandPoint(sent, 0), channel)
    return client


def ready(made: SharingServer, name: str = "q") -> int:
    found: Queue = made.broker.directory.vhost("/").queue(name)
    found.refresh()
    return found.ready + found.returning


def is_new(made: SharingServer) -> None:
    """The session is not kept: attaching it begins another one, which expects nothing."""
    client = Client(made)
    client.control(SessionFlush(expected=True))
    assert client.expect(SessionExpected).commands == ()


def pass_time(made: SharingServer, milliseconds: int) -> None:
    made.now += milliseconds
    for _ in range(5):
        made.end_turn()
    made.run_disk()
