"""Reads entries from the replicas of a stream of NATS, many with one question."""

from __future__ import annotations

import asyncio
import contextlib
import json
from itertools import starmap
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from escrowmq.replica.log import StoredEntry

_FIRST_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 2.0
_STALL_SECONDS: Final = 0.5
"""How long an answer that has begun may stop."""
_READ_BYTES: Final = 8 * 1024 * 1024


def answer_seconds(attempt: int) -> float:
    """Return how long the replica may say nothing that NATS picks for a read which was asked `attempt` times before.

    It may be one whose machine is lost. NATS picks such a one for as long as its servers keep a connection to it, which
    may take minutes, and a leader must not wait for it until its lease is over.
    """
    return float(min(_FIRST_SECONDS * 2 ** (attempt // 2), _LONGEST_SECONDS))


class _Answer:
    """The answer to a question, as far as it has come. Its last message has a status instead of an entry.

    Entries without headers have no positions. They are counted from where the question began, if the last message says
    that none is missing.
    """

    def __init__(self, position: int, most: int) -> None:
        self.entries: list[StoredEntry] = []
        self.came = 0
        """The messages so far."""
        self.whole = asyncio.get_running_loop().create_future()
        self._position = position
        self._most = most
        self._bare: list[bytes] = []

    @property
    def is_inexact(self) -> bool:
        """Whether entries came whose positions are not known."""
        return bool(self._bare) and not self.entries

    def add(self, message: Msg) -> None:
        """Take a message of the answer."""
        self.came += 1
        headers = message.headers
        if not headers:
            self._bare.append(message.data)
        elif "Status" not in headers:
            self.entries.append(StoredEntry(int(headers["Nats-Sequence"]) - 1, message.data))
            if len(self.entries) == self._most:
                self._end()
        else:
            if headers.get("Nats-Last-Sequence") == str(self._position + len(self._bare)):
                self.entries = list(starmap(StoredEntry, enumerate(self._bare, self._position)))
            self._end()

    def _end(self) -> None:
        if not self.whole.done():
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

    async def read(self, position: int, most: int, patience: float) -> list[StoredEntry]:
        """Ask one of the replicas for entries, and return those that came, in order. It may not have the newest yet.

        If it says nothing for `patience` seconds, the rest can be asked for again, and another one may answer then.
        """
        answer = await self._ask(position, most, patience, bare=True)
        if answer.is_inexact:
            answer = await self._ask(position, most, patience, bare=False)
        return answer.entries

    async def _ask(self, position: int, most: int, patience: float, *, bare: bool) -> _Answer:
        """Ask for entries, with `bare` without their headers, which take longer to read than a small entry."""
        self._serial += 1
        reply = f"{self._inbox}.{self._serial}"
        answer = self._answers[reply] = _Answer(position, most)
        request = {"seq": position + 1, "batch": most, "max_bytes": _READ_BYTES, "no_hdr": bare}
        try:
            with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):  # what has come is in order
                await self._client.publish(self._subject, json.dumps(request).encode(), reply)
                known = -1
                while not answer.whole.done() and answer.came > known:
                    known = answer.came
                    await asyncio.wait({answer.whole}, timeout=max(patience, _STALL_SECONDS) if known else patience)
        finally:
            del self._answers[reply]
        return answer

    async def _receive(self, message: Msg) -> None:
        answer = self._answers.get(message.subject)
        if answer is not None:
            answer.add(message)
