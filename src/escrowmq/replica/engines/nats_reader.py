"""Reads entries from the replicas of a stream of NATS, many with one question."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from escrowmq.replica.log import StoredEntry

_ANSWER_SECONDS: Final = 2.0
"""How long a replica may say nothing. The rest is asked for again, and another one may answer then."""
_READ_BYTES: Final = 8 * 1024 * 1024


class _Answer:
    """The answer to a question, as far as it has come."""

    def __init__(self, most: int) -> None:
        self.entries: list[StoredEntry] = []
        self.most = most
        self.whole = asyncio.get_running_loop().create_future()

    def add(self, message: Msg) -> None:
        """Take a message of the answer. The last one may have a status instead of an entry."""
        headers = message.headers or {}
        if "Status" not in headers:
            self.entries.append(StoredEntry(int(headers["Nats-Sequence"]) - 1, message.data))
        if ("Status" in headers or len(self.entries) == self.most) and not self.whole.done():
            self.whole.set_result(None)


class NatsReader:
    """Asks on a connection that others use, too. Belongs to its event loop."""

    def __init__(self, client: Client, stream: str) -> None:
        self._client = client
        self._subject = f"$JS.API.DIRECT.GET.{stream}"
        self._inbox = client.new_inbox()
        self._serial = 0
        self._answers: dict[str, _Answer] = {}
        """The questions that wait, by their reply subjects."""

    async def open(self) -> None:
        """Subscribe to all answers."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._receive)

    async def read(self, position: int, most: int) -> list[StoredEntry]:
        """Ask one of the replicas for entries, and return those that came, in order. It may not have the newest yet."""
        self._serial += 1
        reply = f"{self._inbox}.{self._serial}"
        answer = self._answers[reply] = _Answer(most)
        request = {"seq": position + 1, "batch": most, "max_bytes": _READ_BYTES}
        try:
            with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):  # what has come is in order
                await self._client.publish(self._subject, json.dumps(request).encode(), reply)
                known = -1
                while not answer.whole.done() and len(answer.entries) > known:
                    known = len(answer.entries)
                    await asyncio.wait({answer.whole}, timeout=_ANSWER_SECONDS)
        finally:
            del self._answers[reply]
        return answer.entries

    async def _receive(self, message: Msg) -> None:
        answer = self._answers.get(message.subject)
        if answer is not None:
            answer.add(message)
