"""Errors of NATS that are told to the operator; `tests/engines` has the tests against real servers."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from nats.aio.client import Client

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats import NatsLog
from escrowmq.replica.engines.opening import open_log

INFO = {
    "server_id": "S",
    "version": "2.10.0",
    "proto": 1,
    "max_payload": 1 << 20,
    "auth_required": True,
    "headers": True,
}


@contextmanager
def refusing_server() -> Iterator[int]:
    """Refuse the first login, and reset every later connection. Yields the port."""

    def serve() -> None:
        first = True
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer, suppress(OSError):
                    if first:
                        peer.sendall(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
                        peer.recv(4096)
                        peer.sendall(b"-ERR 'Authorization Violation'\r\n")
                        peer.recv(4096)
                    else:
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                first = False

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_question_during_which_the_connection_is_closed_is_an_error_of_the_connection() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    log = object.__new__(NatsLog)
    log.address, log._timeout, log._loop = EngineAddress.parse("nats://h1:4222/journal"), 5.0, asyncio.new_event_loop()
    thread = threading.Thread(target=log._loop.run_forever)
    thread.start()
    try:
        with pytest.raises(ConnectionError, match="the connection was closed"):
            log._wait(cancelled())
    finally:
        log._loop.call_soon_threadsafe(log._loop.stop)
        thread.join()
        log._loop.close()


def test_a_refused_login_is_told_although_later_connections_are_reset() -> None:
    with refusing_server() as port, pytest.raises(OSError, match=r"cannot be reached: .*Authorization") as raised:
        open_log(f"nats://broker:wrong@127.0.0.1:{port}/journal", timeout=2.0)
    assert "wrong" not in str(raised.value)


def test_a_refused_login_is_told_although_the_client_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TLS, the client may wait for ever for the end of a connection that the server has reset."""

    async def hang(_: Client) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Client, "close", hang)
    with refusing_server() as port, pytest.raises(OSError, match=r"cannot be reached: .*Authorization"):
        open_log(f"nats://broker:wrong@127.0.0.1:{port}/journal", timeout=0.5)
