"""Appends entries to a stream of NATS. Each is published with a reply subject of its own, and none waits for others.

The client library is of asyncio. Its event loop has no thread of its own here: it runs on the thread of a caller that
sends, waits or tends. Changes of thread would take as long as NATS takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_append import AppendRefused, NatsAppend
from escrowmq.replica.engines.nats_client import NatsErrors, connect, host_of
from escrowmq.replica.engines.nats_loop import new_append_loop
from escrowmq.replica.engines.within import within
from escrowmq.replica.errors import AppendUnknown

_PAUSE: Final = 0.1
_ACK_SECONDS: Final = 4.0
"""How long nothing may be acknowledged. Those who append then ask what is there, and append again."""
_CLOSE_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 1.0
_TEND_SECONDS: Final = 0.01
_NO_RESPONDERS: Final = "503"
_CLOSED: Final = "the connection was closed"


class NatsAppender:
    """A connection for appends. Several threads may use it, and one at a time runs its event loop."""

    def __init__(self, address: EngineAddress, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._errors = NatsErrors()
        self._client: Client | None = None
        self._inbox = ""
        self._serial = 0
        self._waiting: dict[str, tuple[NatsAppend, int]] = {}
        """The appends that wait, and which of their entries, by the reply subject."""
        self._loop = new_append_loop()
        self._running = threading.Lock()
        self._ran_at = time.monotonic()
        self._closed = False
        self._waits = False
        """Whether the loop runs until something is answered."""
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def host(self) -> str:
        """Where the connection is, or nothing."""
        return "" if self._client is None else host_of(self._client)

    def connect(self, hosts: Sequence[str]) -> None:
        """Connect to the first of `hosts` that answers. Raises ConnectionError."""
        try:
            self._run(self._connect(hosts))
        except BaseException:
            self.close()
            raise

    def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
        """Begin to append entries. See `ReplicatedLog`."""
        append = NatsAppend(entries)
        self._run(self._publish(append))
        return partial(self._answered, append)

    def tend(self) -> None:
        """Let the connection do what is due, if nobody has used it for a while: answer and send signs of life."""
        if time.monotonic() - self._ran_at > _IDLE_SECONDS and not self._closed:
            with contextlib.suppress(ConnectionError):
                self._run(asyncio.sleep(_TEND_SECONDS))

    def close(self) -> None:
        """Disconnect. Appends that wait for answers fail. An event loop may run on the caller's thread."""
        self._closed = True
        with contextlib.suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(self._fail, _CLOSED)
        closing = threading.Thread(target=self._close, name="replication-closer", daemon=True)
        closing.start()
        closing.join()

    def _close(self) -> None:
        with self._running:
            if not self._loop.is_closed():
                self._loop.run_until_complete(self._shut())
                self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on this thread. Raises ConnectionError if the loop is closed."""
        with self._running:
            if self._closed:
                coroutine.close()
                raise self._gone()
            self._loop.run_until_complete(coroutine)
            self._ran_at = time.monotonic()

    def _answered(self, append: NatsAppend) -> list[int]:
        """Wait for a majority of replicas. Publish all entries again if certainly none of them was stored."""
        give_up = time.monotonic() + self._timeout
        with self._running:
            if self._closed:
                raise self._gone()
            while True:
                try:
                    return self._wait(append, give_up)
                except AppendRefused as error:
                    if time.monotonic() > give_up:
                        raise AppendUnknown(f"NATS at {self.address} did not store an append: {error}") from None
                    self._loop.run_until_complete(asyncio.sleep(_PAUSE))
                    append.begin_again()
                finally:
                    self._ran_at = time.monotonic()
                    if self._waiting:
                        self._forget(append)

    def _wait(self, append: NatsAppend, give_up: float) -> list[int]:
        """Wait until an append is done, and publish meanwhile what may follow."""
        while not append.is_done:
            if self._closed:
                raise self._unknown(_CLOSED)
            if append.may_publish:
                self._loop.run_until_complete(self._publish(append))
            else:
                self._wait_for_answer(append, min(_ACK_SECONDS, give_up - time.monotonic()))
        return append.result()

    def _wait_for_answer(self, append: NatsAppend, seconds: float) -> None:
        """Run the loop until something is answered, which stops it. A task would take longer. Raises AppendUnknown."""
        append.changed, self._waits = self._answer, True
        answered = self._run_until(self._loop.time() + seconds)
        append.changed, self._waits = None, False
        if not answered:
            raise self._unknown(str(self._errors) or "no answer")

    def _run_until(self, when: float) -> bool:
        """Run the loop until an answer stops it, and return True, or False at that time of the loop."""
        loop = self._loop
        while True:
            if self._alarm is None or self._alarm.when() > when:
                self._set_alarm(when)
            loop.run_forever()
            if not self._waits:
                return True
            if loop.time() >= when:
                return False

    def _answer(self) -> None:
        self._waits = False
        self._loop.stop()

    def _set_alarm(self, when: float) -> None:
        """Stop the loop then if an append waits. The alarm stays for later appends, which mostly do not need one."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._waits:
            self._loop.stop()

    async def _connect(self, hosts: Sequence[str]) -> None:
        client = await connect(self.address, hosts, self._timeout, self._errors, self._on_disconnected)
        self._client = client
        self._inbox = client.new_inbox()
        await client.subscribe(f"{self._inbox}.*", cb=self._receive)

    async def _publish(self, append: NatsAppend) -> None:
        """Publish as many entries as may be on their way."""
        client = self._client
        assert client is not None
        try:
            for index, entry in append.next_entries():
                self._serial += 1
                reply = f"{self._inbox}.{self._serial}"
                self._waiting[reply] = append, index
                await client.publish(self.address.subject, entry, reply=reply)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            self._forget(append)
            append.fail(self._unknown(str(error) or str(self._errors) or "no answer"))

    async def _receive(self, message: Msg) -> None:
        """Take an answer."""
        append, index = self._waiting.pop(message.subject, (None, 0))
        if append is None:
            return
        if message.headers and message.headers.get("Status") == _NO_RESPONDERS:
            append.refuse("the stream has no leader")
            return
        answer = json.loads(message.data.decode())
        if "error" in answer:
            append.fail(AppendUnknown(f"NATS did not store an append: {answer['error'].get('description')}"))
        else:
            append.store(index, int(answer["seq"]) - 1)

    def _gone(self) -> ConnectionError:
        return ConnectionError(f"NATS at {self.address}: {_CLOSED}")

    def _unknown(self, reason: str) -> AppendUnknown:
        return AppendUnknown(f"NATS at {self.address} did not acknowledge an append: {reason}")

    def _forget(self, append: NatsAppend) -> None:
        self._waiting = {reply: place for reply, place in self._waiting.items() if place[0] is not append}

    def _fail(self, reason: str) -> None:
        """Give up the answers that are waited for."""
        waiting, self._waiting = self._waiting, {}
        for append, _ in waiting.values():
            append.fail(AppendUnknown(f"NATS at {self.address} did not answer an append: {reason}"))

    async def _on_disconnected(self) -> None:
        self._fail("it closed the connection")

    async def _shut(self) -> None:
        """Close the connection, and let the loop do what is left of it."""
        if self._client is not None:
            with contextlib.suppress(TimeoutError, OSError, nats.errors.Error):
                await within(_CLOSE_SECONDS, self._client.close())
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)
