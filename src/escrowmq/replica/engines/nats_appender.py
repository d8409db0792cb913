"""Appends entries to a stream of NATS. Each is published with a reply subject of its own, and none waits for others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_client import WINDOW_BYTES, NatsErrors, connect
from escrowmq.replica.errors import AppendUnknown

_PAUSE: Final = 0.1
_ACK_SECONDS: Final = 4.0
"""How long nothing may be acknowledged. Those who append then ask what is there, and append again."""
_WINDOW_ENTRIES: Final = 2000
_NO_RESPONDERS: Final = "503"


class _Refused(Exception):  # noqa: N818 - named after the event
    """The entry was certainly not stored."""


class NatsAppender:
    """A connection on which one append is made after the other. Its coroutines belong to one event loop."""

    def __init__(self, address: EngineAddress, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._errors = NatsErrors()
        self.client: Client
        self._inbox = ""
        self._serial = 0
        self._waiting: dict[str, asyncio.Future[int]] = {}

    async def connect(self, hosts: Sequence[str]) -> None:
        """Connect to the first of `hosts` that answers. Raises ConnectionError."""
        self.client = await connect(self.address, hosts, self._timeout, self._errors, self._on_disconnected)
        self._inbox = self.client.new_inbox()
        await self.client.subscribe(f"{self._inbox}.*", cb=self._receive)

    async def append(self, entries: Sequence[bytes]) -> list[int]:
        """Append entries in order, and wait for a majority of replicas. See `ReplicatedLog`."""
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                return await self._publish(entries, give_up)
            except _Refused as error:
                if time.monotonic() > give_up:
                    raise AppendUnknown(f"NATS at {self.address} did not store an append: {error}") from None
                await asyncio.sleep(_PAUSE)

    def fail(self, reason: str) -> None:
        """Give up the answers that are waited for."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(AppendUnknown(reason))
                future.exception()  # it may be that nobody asks any more

    async def _publish(self, entries: Sequence[bytes], give_up: float) -> list[int]:
        """Publish all entries once, and return their positions. Raises _Refused if none of them was stored."""
        futures: list[asyncio.Future[int]] = []
        positions: list[int] = []
        under_way = 0

        async def answered() -> None:
            left = min(_ACK_SECONDS, give_up - time.monotonic())
            positions.append(await asyncio.wait_for(futures[len(positions)], max(0.0, left)))

        try:
            for entry in entries:
                while len(positions) < len(futures) and (
                    under_way + len(entry) > WINDOW_BYTES or len(futures) - len(positions) >= _WINDOW_ENTRIES
                ):
                    under_way -= len(entries[len(positions)])
                    await answered()
                reply, future = self._expect()
                futures.append(future)
                under_way += len(entry)
                await self.client.publish(self.address.subject, entry, reply=reply)
            while len(positions) < len(futures):
                await answered()
        except (TimeoutError, nats.errors.Error, OSError) as error:
            reason = str(error) or str(self._errors) or "no answer"
            raise AppendUnknown(f"NATS at {self.address} did not acknowledge an append: {reason}") from None
        except _Refused as error:
            if any(not future.done() or future.exception() is None for future in futures):
                raise AppendUnknown(f"NATS at {self.address} may have stored a part of an append: {error}") from None
            raise
        finally:
            for future in futures:
                if future.done() and not future.cancelled():
                    future.exception()
                future.cancel()
        return positions

    def _expect(self) -> tuple[str, asyncio.Future[int]]:
        """Return a reply subject, and what gets the position or the error."""
        self._serial += 1
        subject = f"{self._inbox}.{self._serial}"
        future = self._waiting[subject] = asyncio.get_running_loop().create_future()
        return subject, future

    async def _receive(self, message: Msg) -> None:
        """Take an answer."""
        future = self._waiting.pop(message.subject, None)
        if future is None or future.done():
            return
        if (message.headers or {}).get("Status") == _NO_RESPONDERS:
            future.set_exception(_Refused("the stream has no leader"))
            return
        answer = json.loads(message.data)
        if "error" in answer:
            future.set_exception(AppendUnknown(f"NATS did not store an append: {answer['error'].get('description')}"))
        else:
            future.set_result(int(answer["seq"]) - 1)

    async def _on_disconnected(self) -> None:
        self.fail(f"NATS at {self.address} closed the connection before it answered an append")
