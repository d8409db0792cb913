"""What an appender to NATS keeps of appends that failed, and how it ends; `tests/engines` has the tests on servers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_appender import NatsAppender
from escrowmq.replica.errors import AppendUnknown

ADDRESS = EngineAddress.parse("nats://127.0.0.1:1/t")


class Connection:
    """A client of NATS. `answer` returns the answer to a published entry, or None for no answer."""

    connected_url = None

    def __init__(self, appender: NatsAppender, answer: Callable[[bytes], Any]) -> None:
        self._appender = appender
        self._answer = answer

    async def publish(self, _subject: str, entry: bytes, reply: str) -> None:
        """Have the answer received after this."""
        answer = self._answer(entry)
        if answer is not None:
            answer.subject = reply
            self._appender._loop.create_task(self._appender._receive(answer))

    async def close(self) -> None:
        """Do nothing."""


def connected(answer: Callable[[bytes], Any]) -> NatsAppender:
    appender = NatsAppender(ADDRESS, 10)
    connection: Any = Connection(appender, answer)
    appender._client = connection
    return appender


def said(**content: object) -> Any:
    return SimpleNamespace(headers=None, data=json.dumps(content).encode())


def no_responders(_entry: bytes) -> Any:
    return SimpleNamespace(headers={"Status": "503"}, data=b"")


def test_answers_that_never_come_are_not_waited_for_after_their_append_has_failed() -> None:
    appender = connected(lambda entry: said(error={"description": "no"}) if entry == b"a" else None)
    with pytest.raises(AppendUnknown, match="did not store an append: no"):
        appender.send([b"a", b"b"])()
    assert not appender._waiting
    appender.close()


def test_an_appender_that_is_closed_does_not_repeat_an_append_that_is_refused() -> None:
    appender = connected(no_responders)
    finish = appender.send([b"a"])
    closing = threading.Timer(0.3, appender.close)
    closing.start()
    began = time.monotonic()
    with pytest.raises(AppendUnknown, match="the connection was closed"):
        finish()
    assert time.monotonic() - began < 5
    closing.join()
