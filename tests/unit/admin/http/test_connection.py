"""The time in which a request has to arrive, and in which its answer has to be read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from escrowmq.admin.http import connection, unread
from escrowmq.admin.http.connection import TimedProtocol
from tests.certificates import Authority

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and of a client that does not look at its name."""
    certificate, key = Authority(folder).issue("localhost")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    return serving, asking


INCOMPLETE = {
    "nothing": b"",
    "a head without an end": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "a body without an end": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\nx",
    "a second head without an end": REQUEST + b"G",
}


async def app(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(app, http=TimedProtocol, lifespan="off", ws="none", log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: TimedProtocol(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


@pytest.mark.parametrize("sent", INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_request_that_does_not_end_in_time_ends_the_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.2)

    async def trickle(writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(0.05)
            writer.write(b"x" * bool(sent))

    async def scenario() -> None:
        async with connected() as (reader, writer):
            writer.write(sent)
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(trickle(writer))
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 3)
                feeding.cancel()

    asyncio.run(scenario())


def test_a_connection_that_sends_whole_requests_lives_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.2)

    async def scenario() -> None:
        async with connected() as (reader, writer):
            for _ in range(4):
                writer.write(REQUEST)
                assert b" 204 " in await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(0.1)

    asyncio.run(scenario())


@pytest.mark.rule("SEC-4")
@pytest.mark.parametrize("local", [False, True])
def test_an_address_has_a_limit_of_its_own_unless_it_is_this_machine(
    local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimedProtocol, "most_of_address", 1)
    if not local:
        monkeypatch.setattr(TimedProtocol, "_is_local", lambda _: False)

    async def scenario() -> list[bool]:
        gone = asyncio.Event()

        class Watched(TimedProtocol):
            """Tells when the last connection is gone."""

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                if not self._of_address:
                    gone.set()

        config = uvicorn.Config(app, http=TimedProtocol, lifespan="off", ws="none", log_config=None)
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Watched(config, ServerState(), {}), "127.0.0.1", 0)
        answered = []
        for _ in range(2):
            streams = [await asyncio.open_connection(*server.sockets[0].getsockname()) for _ in range(2)]
            for reader, writer in streams:
                writer.write(REQUEST)
                answer = b""
                with contextlib.suppress(ConnectionError):
                    answer = await reader.read(12)
                answered.append(answer == b"HTTP/1.1 204")
            for _, writer in streams:
                writer.close()
            await gone.wait()
            gone.clear()
        server.close()
        return answered

    assert asyncio.run(scenario()) == [True, local] * 2


@pytest.mark.rule("SEC-4")
@pytest.mark.parametrize("kind", ["a large answer", "many small ones", "an answer before the connection is closed"])
@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_does_not_read_is_disconnected(
    kind: str, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving, asking = contexts(tmp_path) if tls else (None, None)
    for module in (connection, unread):
        monkeypatch.setattr(module, "UNREAD_SECONDS", 0.3)
    large = kind != "many small ones"
    body = b"x" * (20 << 20 if large else 60_000)

    async def answering(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def scenario() -> None:
        gone = asyncio.Event()

        class Watched(TimedProtocol):
            """Tells when the connection is gone."""

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                gone.set()

        config = uvicorn.Config(answering, http=Watched, lifespan="off", ws="none", log_config=None)
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Watched(config, ServerState(), {}), "127.0.0.1", 0, ssl=serving)
        closing = b"Connection: close\r\n" if "closed" in kind else b""
        request = REQUEST.replace(b"\r\n\r\n", b"\r\n" + closing + b"\r\n")
        # A reader with such a limit stops reading almost at once.
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1, ssl=asking)
        writer.write(request * (1 if large else 400))
        await asyncio.wait_for(gone.wait(), 20)
        writer.transport.abort()
        server.close()
        assert TimedProtocol.unread.waiting_bytes == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", REQUEST + b"\x00\r\n\r\n"])
def test_what_is_no_request_is_answered_with_the_headers_of_every_answer(sent: bytes) -> None:
    async def scenario() -> bytes:
        async with connected() as (reader, writer):
            writer.write(sent)
            return await asyncio.wait_for(reader.read(), 5)

    head, body = asyncio.run(scenario()).rpartition(b"HTTP/1.1 400")[2].split(b"\r\n\r\n")
    assert b"x-content-type-options: nosniff\r\ncache-control: no-store" in head
    assert json.loads(body)["error"] == "bad_request"


def test_a_body_that_becomes_invalid_during_its_answer_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with connected() as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"nonsense\r\n")
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 5)

    asyncio.run(scenario())
    assert "Fatal error" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.rule("SEC-4")
def test_at_the_limit_a_new_connection_takes_the_place_of_the_oldest_incomplete_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TimedProtocol, "most", 3)
    config = uvicorn.Config(app, http=TimedProtocol, lifespan="off", ws="none", log_config=None, limit_concurrency=3)
    config.load()

    async def scenario() -> None:
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: TimedProtocol(config, state, {}), "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        slow = [await asyncio.open_connection(*address) for _ in range(2)]
        for _, writer in slow:
            writer.write(REQUEST[:-2])
        others = []
        for number in range(2):
            reader, writer = await asyncio.open_connection(*address)
            others.append(writer)
            writer.write(REQUEST)
            assert b" 204 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(slow[number][0].read(), 5) == b"", "the oldest is closed first"
        for writer in (*others, *(writer for _, writer in slow)):
            writer.close()
        server.close()

    asyncio.run(scenario())
