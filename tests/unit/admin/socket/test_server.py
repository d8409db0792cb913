"""Requests and answers of the admin socket, and the commands against a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from escrowmq.admin.operation import Listing, NothingFound, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.socket import path as socket_path
from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.admin.socket.server import AdminServer
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.server.benches import on_loop


async def add(a: int, b: int = 0) -> int:
    return a + b


async def refuse(text: str) -> None:
    raise OperationRefused(text)


async def miss() -> None:
    raise NothingFound("no object x")


async def refuse_in_core() -> None:
    raise BrokerError(Condition.NOT_FOUND, "no such thing")


async def fail() -> None:
    raise KeyError("broken")


async def count(most: int, broken_at: int = -1) -> Listing:
    def steps() -> Iterator[Row | None]:
        for number in range(most):
            if number == broken_at:
                raise KeyError("broken")
            yield {"number": number} if number % 3 else None

    return Listing(Pieces(2), steps())


OPERATIONS: dict[str, Operation] = {
    "add": add,
    "refuse": refuse,
    "miss": miss,
    "core": refuse_in_core,
    "fail": fail,
    "count": count,
}


def answered(line: bytes) -> Any:
    """Return the answer to a request, after checking that it is one line."""

    async def parts() -> bytes:
        return b"".join([part async for part in AdminServer(OPERATIONS).answer(line)])

    text = asyncio.run(parts())
    assert text.count(b"\n") == text.endswith(b"\n") == 1
    return json.loads(text)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ({"command": "add", "arguments": {"a": 1, "b": 2}}, {"result": 3}),
        ({"command": "add", "arguments": {"a": 1}}, {"result": 1}),
        ({"command": "refuse", "arguments": {"text": "no"}}, {"error": "no"}),
        ({"command": "miss"}, {"error": "no object x", "missing": True}),
        ({"command": "core"}, {"error": "no such thing", "condition": "not-found"}),
        ({"command": "count", "arguments": {"most": 0}}, {"result": []}),
        ({"command": "count", "arguments": {"most": 1}}, {"result": []}),
        ({"command": "count", "arguments": {"most": 6}}, {"result": [{"number": n} for n in (1, 2, 4, 5)]}),
    ],
)
def test_a_request_has_its_answer(request_: dict[str, Any], answer: dict[str, Any]) -> None:
    assert answered(json.dumps(request_).encode()) == answer


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"1", b"{}", b'{"command": "none"}', b'{"command": []}', b'{"command": "add"}', b"\xff"]
)
def test_a_line_that_is_not_a_request_is_an_error(line: bytes) -> None:
    (key,) = answered(line)
    assert key == "error"


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("depth", [40, 500, 100_000])
def test_a_deeply_nested_request_is_refused_without_a_line_in_the_log(
    depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    line = b'{"command": "add", "arguments": {"a": ' + b"[" * depth + b"]" * depth + b"}}"
    assert answered(line)["error"]
    assert caplog.messages == []


def test_an_internal_error_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    answer = answered(b'{"command": "fail"}')
    assert answer == {"error": "internal error: KeyError('broken'); see the broker's log"}
    assert "internal error in the admin operation fail" in caplog.text


def asked(tmp_path: Path, question: Callable[[], Any]) -> Any:
    """Return the answer that a client on another thread gets from a server."""

    async def test() -> Any:
        server = AdminServer(OPERATIONS)
        await server.start(socket_path.bind(tmp_path))
        with ThreadPoolExecutor(1) as pool:
            try:
                return await asyncio.get_running_loop().run_in_executor(pool, question)
            finally:
                server.stop()

    awaitable: Callable[[], Awaitable[Any]] = test
    return on_loop(awaitable)


def test_client_and_server_understand_each_other(tmp_path: Path) -> None:
    assert asked(tmp_path, lambda: ask(tmp_path, "add", a=1, b=2)) == 3


def test_a_refusal_becomes_the_clients_error(tmp_path: Path) -> None:
    with pytest.raises(AdminError, match="not today"):
        asked(tmp_path, lambda: ask(tmp_path, "refuse", text="not today"))


def test_several_requests_may_share_a_connection(tmp_path: Path) -> None:
    def question() -> list[Any]:
        with socket_path.connect(tmp_path, 5) as sock, sock.makefile("rwb") as stream:
            answers = []
            for a in (1, 2):
                stream.write(json.dumps({"command": "add", "arguments": {"a": a}}).encode() + b"\n")
                stream.flush()
                answers.append(json.loads(stream.readline()))
        return answers

    assert asked(tmp_path, question) == [{"result": 1}, {"result": 2}]


def test_an_endless_line_is_not_buffered(tmp_path: Path) -> None:
    def question() -> bytes:
        with socket_path.connect(tmp_path, 5) as sock:
            try:
                for _ in range(64):
                    sock.sendall(b"x" * 65536)
                return sock.recv(10)
            except OSError:
                return b""

    assert asked(tmp_path, question) == b""


async def parts(part_bytes: int) -> list[bytes]:
    request = b'{"command": "count", "arguments": {"most": 5}}'
    return [part async for part in AdminServer(OPERATIONS, part_bytes).answer(request)]


def test_short_pieces_of_a_list_are_sent_together() -> None:
    found = asyncio.run(parts(40))
    assert found == [b'{"result": [{"number": 1}, {"number": 2}', b', {"number": 4}]}\n']


def test_a_list_is_sent_while_it_is_made() -> None:
    assert asyncio.run(parts(1)) == [b'{"result": [{"number": 1}', b', {"number": 2}', b', {"number": 4}', b"]}\n"]


def test_an_answer_that_breaks_off_is_an_error_for_the_client(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AdminError, match="closed the connection before its answer was complete"):
        asked(tmp_path, lambda: ask(tmp_path, "count", most=9, broken_at=5))
    assert "internal error in the middle of an answer" in caplog.text
