"""A node of NATS is found by its name among servers that say it, something else, or nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from escrowmq.replica.engines import nats_node
from escrowmq.replica.engines.nats_node import find_node
from tests.ports import reserve_port


def info(name: str) -> bytes:
    return b"INFO " + json.dumps({"server_id": "S", "server_name": name, "version": "2.10.0"}).encode() + b" \r\n"


async def found(name: str, *lines: bytes) -> int | None:
    """Start a server for each line, which says it, and return the number of the one that is found."""
    writers: list[asyncio.StreamWriter] = []

    def saying(line: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            writer.write(line)

        return say

    servers = [await asyncio.start_server(saying(line), "127.0.0.1", 0) for line in lines]
    hosts = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    try:
        host = await find_node(hosts, name)
    finally:
        for server in servers:
            server.close()
        for writer in writers:
            writer.close()
        await asyncio.sleep(0)
    return None if host is None else hosts.index(host)


def test_the_node_of_a_name_is_found() -> None:
    assert asyncio.run(found("n1", info("n0"), info("n1"), info("n2"))) == 1
    assert asyncio.run(found("n3", info("n0"), info("n1"), info("n2"))) is None


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"INFO {\r\n",
        b"INFO []\r\n",
        b"INFO {}\r\n",
        b"INFO \xff\xfe\r\n",
        b"INFO " + b"[" * 5000 + b"\r\n",
        b"INFO " + b"x" * 100_000 + b"\r\n",
        b"\r\n",
    ],
)
def test_servers_that_are_something_else_are_passed_over(line: bytes) -> None:
    assert asyncio.run(found("n1", line, info("n1"))) == 1


def test_servers_that_say_nothing_or_are_not_there_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_node, "_ANSWER_SECONDS", 0.2)
    owner = type("Owner", (), {})()
    closed = f"127.0.0.1:{reserve_port(owner)}"
    assert asyncio.run(find_node([closed, "no-such-host.invalid:4222"], "n1")) is None
    assert asyncio.run(found("n1", b"", b"INFO", info("n1"))) == 2
