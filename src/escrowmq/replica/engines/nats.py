"""The replicated log as a NATS JetStream stream with one subject: a position is a sequence number less one.

The client library is of asyncio. It runs in a thread of its own, and callers wait for it. Entries are published without
waiting for each other's answers, each with a reply subject of its own, in the order of the caller.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from escrowmq.loops import new_event_loop
from escrowmq.replica.engines.address import NATS_TLS, EngineAddress
from escrowmq.replica.engines.nats_stream import NatsStream, StreamMissing
from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.engines.within import within
from escrowmq.replica.errors import AppendUnknown
from escrowmq.replica.log import StoredEntry
from escrowmq.urls import TLS_PARAMETERS, tls_context

_client_log = logging.getLogger(__name__ + ".client")
_Result = TypeVar("_Result")
_PAUSE: Final = 0.1
_CLOSE_SECONDS: Final = 0.5
_GRACE_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 2.0
"""How long one question waits, before it is asked again; another node may answer then."""
_ACK_SECONDS: Final = 4.0
"""How long nothing may be acknowledged. Those who append then ask what is there, and append again."""
_WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The bytes of entries that are on their way at once. A stream's leader refuses more than 128 MB."""
_WINDOW_ENTRIES: Final = 2000
_ERRORS: Final = 3
"""How many of the client's errors an error of ours repeats."""
_READ_BYTES: Final = 8 * 1024 * 1024
_NO_RESPONDERS: Final = "503"
_END_OF_BATCH: Final = "204"


class _Refused(Exception):  # noqa: N818 - named after the event
    """The entry was certainly not stored."""


class _Acks:
    """The answers to entries that are on their way."""

    def __init__(self) -> None:
        self.inbox = ""
        self._serial = 0
        self._waiting: dict[str, asyncio.Future[int]] = {}

    def expect(self) -> tuple[str, asyncio.Future[int]]:
        """Return a reply subject, and what gets the position or the error."""
        self._serial += 1
        subject = f"{self.inbox}.{self._serial}"
        future = self._waiting[subject] = asyncio.get_running_loop().create_future()
        return subject, future

    async def receive(self, message: Msg) -> None:
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

    def fail(self, reason: str) -> None:
        """Give up what is waited for."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(AppendUnknown(reason))
                future.exception()  # it may be that nobody asks any more


class NatsLog:
    """A log on NATS JetStream. Several threads may use it; appends are made one after the other."""

    def __init__(self, address: EngineAddress, timeout: float) -> None:
        """Connect, and create the stream unless it exists. Raises OSError."""
        self.address = address
        self._timeout = timeout
        self._acks = _Acks()
        self._appending = threading.Lock()
        self._errors: list[str] = []
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="replication-nats", daemon=True)
        self._thread.start()
        try:
            self._client: Client = self._wait(self._connect())
            self._stream = NatsStream(address, self._client, timeout)
            self._wait(self._stream.open())
        except BaseException:
            self.close()
            raise

    async def _connect(self) -> Client:
        address = self.address
        options: dict[str, Any] = {"user_credentials": address.options.get("credentials")}
        if address.user is not None:
            options |= {"user": address.user, "password": address.password}
        if address.scheme == NATS_TLS:
            parameters = {name: value for name, value in address.options.items() if name in TLS_PARAMETERS}
            options["tls"] = tls_context(parameters)
        scheme = "tls" if address.scheme == NATS_TLS else "nats"
        client = Client()
        connecting = client.connect(
            [f"{scheme}://{host}" for host in address.hosts],
            name="escrowmq",
            connect_timeout=2,
            reconnect_time_wait=0.1,  # type: ignore[arg-type]  # it is given to asyncio.sleep
            max_reconnect_attempts=-1,
            ping_interval=1,
            max_outstanding_pings=3,
            pending_size=_WINDOW_BYTES,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            **options,
        )
        try:
            await within(self._timeout, connecting)
        except (TimeoutError, OSError, nats.errors.Error) as error:
            with contextlib.suppress(TimeoutError):  # it may wait for ever for the end of a connection with TLS
                await within(_CLOSE_SECONDS, client.close())
            reason = self._reason() or str(error) or "no answer"
            raise ConnectionError(f"NATS at {address} cannot be reached: {reason}") from None
        self._acks.inbox = client.new_inbox()
        await client.subscribe(f"{self._acks.inbox}.*", cb=self._acks.receive)
        return client

    async def _on_error(self, error: Exception) -> None:
        """Keep the last errors, each once. A refused login is often followed by connections that are reset."""
        text = str(error) or type(error).__name__
        self._errors = [*(each for each in self._errors if each != text), text][-_ERRORS:]

    def _reason(self) -> str:
        return "; ".join(self._errors)

    async def _on_disconnected(self) -> None:
        self._acks.fail(f"NATS at {self.address} closed the connection before it answered an append")

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Append entries in order, and wait for a majority of replicas. See `ReplicatedLog`."""
        with self._appending:
            try:
                return self._wait(self._append(entries))
            except TimeoutError as error:
                raise AppendUnknown(str(error)) from None

    async def _append(self, entries: Sequence[bytes]) -> list[int]:
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                return await self._publish(entries, give_up)
            except _Refused as error:
                if time.monotonic() > give_up:
                    raise AppendUnknown(f"NATS at {self.address} did not store an append: {error}") from None
                await asyncio.sleep(_PAUSE)

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
                    under_way + len(entry) > _WINDOW_BYTES or len(futures) - len(positions) >= _WINDOW_ENTRIES
                ):
                    under_way -= len(entries[len(positions)])
                    await answered()
                reply, future = self._acks.expect()
                futures.append(future)
                under_way += len(entry)
                await self._client.publish(self.address.subject, entry, reply=reply)
            while len(positions) < len(futures):
                await answered()
        except (TimeoutError, nats.errors.Error, OSError) as error:
            reason = str(error) or self._reason() or "no answer"
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

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries that a majority of replicas has. See `ReplicatedLog`."""
        return self._wait(self._read(position, most))

    async def _read(self, position: int, most: int) -> list[StoredEntry]:
        give_up = time.monotonic() + self._timeout
        while True:
            found = await self._batch(position, most)
            if found or (await self._stream.ends())[1] <= position:
                return found
            if time.monotonic() > give_up:
                raise TimeoutError(f"NATS at {self.address} does not deliver the entry at {position}")
            await asyncio.sleep(_PAUSE)

    async def _batch(self, position: int, most: int) -> list[StoredEntry]:
        """Ask one of the replicas for entries. It may not have applied the newest yet."""
        found: list[StoredEntry] = []
        inbox = self._client.new_inbox()
        request = {"seq": position + 1, "batch": most, "max_bytes": _READ_BYTES}
        answers = await self._client.subscribe(inbox)
        try:
            await self._client.publish(f"$JS.API.DIRECT.GET.{self.address.name}", json.dumps(request).encode(), inbox)
            while len(found) < most:
                message = await answers.next_msg(_ANSWER_SECONDS)
                headers = message.headers or {}
                if "Status" in headers:
                    break
                found.append(StoredEntry(int(headers["Nats-Sequence"]) - 1, message.data))
        except (TimeoutError, nats.errors.Error, OSError):
            pass  # what has come is in order; the rest is asked for again
        finally:
            with contextlib.suppress(nats.errors.Error, OSError):
                await answers.unsubscribe()
        return found

    def begin(self) -> int:
        """Return the position of the oldest entry."""
        return self._wait(self._stream.ends())[0]

    def end(self) -> int:
        """Return the position behind the newest entry that the stream's leader has applied, as a majority has it."""
        return self._wait(self._stream.ends())[1]

    def trim(self, before: int) -> None:
        """Delete the entries before a position."""
        self._wait(self._stream.trim(before))

    def check(self) -> list[WrongSetting]:
        """Return the settings of the stream that are wrong now."""
        return self._wait(self._stream.check())

    def state(self) -> EngineState:
        """Ask for leader and replicas."""
        return self._wait(self._stream.state())

    def close(self) -> None:
        """Disconnect, and end the thread."""
        if self._loop.is_closed():
            return
        client = getattr(self, "_client", None)
        if client is not None:
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(_shut(client), self._loop).result(_GRACE_SECONDS)
        self._acks.fail("the connection was closed")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in the thread of the client, and return its result."""
        if self._loop.is_closed():
            coroutine.close()
            raise ConnectionError(f"NATS at {self.address}: the connection was closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(self._timeout + _GRACE_SECONDS)
        except concurrent.futures.TimeoutError as error:
            if future.cancel():
                raise TimeoutError(f"NATS at {self.address} did not answer in {self._timeout:g} s") from None
            raise TimeoutError(str(error)) from None
        except concurrent.futures.CancelledError:
            raise ConnectionError(f"NATS at {self.address}: the connection was closed") from None
        except nats.errors.Error as error:
            raise ConnectionError(f"NATS at {self.address}: {error}") from None
        except StreamMissing as error:
            raise ConnectionError(str(error)) from None


async def _shut(client: Client) -> None:
    """Close a connection, and let the loop do what is left of it."""
    await client.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)
