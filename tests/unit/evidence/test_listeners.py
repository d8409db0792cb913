"""The number of listeners is limited for each user and together, and a stream that ends makes room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from escrowmq.evidence import listeners
from escrowmq.evidence.listeners import EventStream, Listeners

SCOPE = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}}


def refusal(counted: Listeners, user: str) -> tuple[int, str]:
    with pytest.raises(HTTPException) as refused:
        counted.add(user)
    assert refused.value.headers == {"Retry-After": "60"}
    return refused.value.status_code, refused.value.detail


@pytest.mark.rule("FAIR-3")
def test_listeners_are_limited_for_each_user_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "MOST_LISTENERS", 3)
    monkeypatch.setattr(listeners, "MOST_OF_USER", 2)
    counted = Listeners()
    counted.add("a")
    counted.add("a")
    assert refusal(counted, "a") == (429, "user 'a' has 2 streams of events, which is the limit")
    counted.add("b")
    assert refusal(counted, "c") == (503, "there are 3 streams of events, which is the limit")
    counted.remove("a")
    counted.add("c")


@pytest.mark.parametrize("failing", ["the first message", "a later message", "nothing"])
def test_a_stream_makes_room_however_it_ends(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "MOST_OF_USER", 1)
    counted, sent = Listeners(), 0

    async def told() -> AsyncIterator[bytes]:
        yield b"x"

    async def send(_: Any) -> None:
        nonlocal sent
        sent += 1
        if failing == {1: "the first message", 2: "a later message"}.get(sent):
            raise ValueError

    async def receive() -> Any:
        return {}

    stream = EventStream(told(), counted, "a")
    if failing == "nothing":
        asyncio.run(stream(SCOPE, receive, send))
    else:
        with pytest.raises(ValueError):
            asyncio.run(stream(SCOPE, receive, send))
    counted.add("a")
