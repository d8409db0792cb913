"""Appends entries to a stream of NATS. Each is published with a reply subject of its own, and none waits for others.

The connection has no thread of its own: the thread of a caller that sends, waits or tends uses it. Changes of thread
would take as long as NATS takes.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_append import AppendRefused, NatsAppend
from escrowmq.replica.engines.nats_attempt import NatsAttempt
from escrowmq.replica.engines.nats_socket import NatsSocket
from escrowmq.replica.engines.nats_wire import NatsMessage, publish
from escrowmq.replica.errors import AppendUnknown

_PAUSE: Final = 0.1
_ACK_SECONDS: Final = 4.0
"""How long nothing may be acknowledged. The next append is then made at another host: a server that is cut off from the
others still accepts clients, and shows them signs of life. Callers ask for the end of the log before they append again.
"""
_CLOSE_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 1.0
_NO_RESPONDERS: Final = "503"
_STORED: Final = re.compile(rb'\{"stream":"[^"]*", ?"seq":([1-9][0-9]{0,17})\}')
"""The common answer. Others are read as JSON, which takes longer than anything else that an append does here."""
_CLOSED: Final = "the connection was closed"


class NatsAppender:
    """A connection for appends. Several threads may use it, one at a time."""

    def __init__(self, address: EngineAddress, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self._serial = 0
        self._waiting: dict[str, tuple[NatsAppend, int]] = {}
        """The appends that wait, and which of their entries, by the reply subject."""
        self._given: list[str] = []
        """Where to connect at first."""
        self._hosts: list[str] = []
        """Where to connect next, in this order."""
        self._socket: NatsSocket | None = None
        self._attempt: NatsAttempt | None = None
        """What may become the next connection, while there is none."""
        self._running = threading.Lock()
        self._ran_at = time.monotonic()
        self._closed = threading.Event()

    @property
    def host(self) -> str:
        """Where the connection is, or nothing."""
        sock = self._socket
        return "" if sock is None else sock.host

    def connect(self, hosts: Sequence[str]) -> None:
        """Connect to the first of `hosts` that answers. Raises ConnectionError."""
        self._given = self._hosts = list(hosts)
        try:
            with self._running:
                self._connect(self._timeout)
        except BaseException:
            self.close()
            raise

    def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
        """Begin to append entries. See `ReplicatedLog`."""
        append = NatsAppend(entries)
        with self._running:
            self._check_open()
            give_up = time.monotonic() + _ACK_SECONDS
            while self._socket is not None and append.may_publish and time.monotonic() < give_up:
                self._publish(append, give_up)
            self._ran_at = time.monotonic()
        return partial(self._answered, append)

    def tend(self) -> None:
        """Exchange signs of life if nobody has used the connection for a while, and connect again if it was lost."""
        if time.monotonic() - self._ran_at <= _IDLE_SECONDS:
            return
        with contextlib.suppress(ConnectionError), self._running:
            self._check_open()
            if self._socket is None:
                self._connect(0)
            else:
                self._use(NatsSocket.tend)

    def close(self) -> None:
        """Disconnect. Appends that wait for answers fail."""
        self._closed.set()
        sock, attempt = self._socket, self._attempt
        if sock is not None:
            sock.interrupt()
        if attempt is not None:
            attempt.abandon()
        if self._running.acquire(timeout=_CLOSE_SECONDS):  # otherwise the thread that runs closes it
            self._close()
            self._running.release()

    def _answered(self, append: NatsAppend) -> list[int]:
        """Wait for a majority of replicas. Publish all entries again if certainly none of them was stored."""
        began = time.monotonic()
        give_up, leave_at = began + self._timeout, began + _ACK_SECONDS
        with self._running:
            self._check_open()
            while True:
                try:
                    return self._wait(append, give_up)
                except AppendRefused as error:
                    now = time.monotonic()
                    if now > min(give_up, leave_at):
                        self._lose(str(error))
                        leave_at = now + _ACK_SECONDS
                    if now > give_up:
                        raise AppendUnknown(f"NATS at {self.address} did not store an append: {error}") from None
                    self._closed.wait(_PAUSE)
                    append.begin_again()
                finally:
                    self._ran_at = time.monotonic()
                    if self._waiting:
                        self._forget(append)

    def _wait(self, append: NatsAppend, give_up: float) -> list[int]:
        """Wait until an append is done, and publish meanwhile what may follow."""
        silent_at = min(time.monotonic() + _ACK_SECONDS, give_up)
        while not append.is_done:
            if self._closed.is_set():
                raise self._unknown(_CLOSED)
            if self._socket is None:
                self._connect_to_append(silent_at)
            if append.may_publish:
                self._publish(append, silent_at)
                answered = self._use(NatsSocket.take_arrived)
            else:
                answered = self._use(NatsSocket.receive)
            if answered:
                silent_at = min(time.monotonic() + _ACK_SECONDS, give_up)
            if time.monotonic() > silent_at and not append.is_done:
                reason = self._complaint() or "no answer"
                self._lose(reason)
                raise self._unknown(reason)
        return append.result()

    def _publish(self, append: NatsAppend, give_up: float) -> None:
        """Publish the next entries."""
        sock = self._socket
        assert sock is not None
        entries: list[tuple[str, bytes]] = []
        for index, entry in append.next_entries():
            if len(entry) > sock.most_bytes:
                append.fail(self._unknown(f"it accepts {sock.most_bytes} bytes, and the entry has {len(entry)}"))
                break
            self._serial += 1
            reply = f"{self._inbox}.{self._serial}"
            self._waiting[reply] = append, index
            entries.append((reply, entry))
        data = publish(self.address.subject, entries)
        self._use(lambda sock: sock.send(data, give_up - time.monotonic()))

    def _complaint(self) -> str:
        return "" if self._socket is None else self._socket.complaint

    def _use(self, work: Callable[[NatsSocket], list[NatsMessage] | None]) -> bool:
        """Do something with the connection, and return whether answers came. If it is lost, all appends fail."""
        sock = self._socket
        if sock is None:
            return False
        try:
            messages = work(sock)
        except ConnectionError as error:
            self._lose(str(error))
            return False
        for message in messages or ():
            self._receive(message)
        return bool(messages)

    def _receive(self, message: NatsMessage) -> None:
        """Take an answer."""
        append, index = self._waiting.pop(message.subject, (None, 0))
        if append is None:
            return
        if message.status == _NO_RESPONDERS:
            append.refuse("the stream has no leader")
            return
        stored = _STORED.fullmatch(message.data)
        if stored is not None:
            append.store(index, int(stored[1]) - 1)
            return
        try:
            answer: dict[str, Any] = json.loads(message.data)
            if "error" in answer:
                append.fail(AppendUnknown(f"NATS did not store an append: {answer['error'].get('description')}"))
                return
            sequence = answer["seq"]
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            sequence = None
        if type(sequence) is int and sequence > 0:
            append.store(index, sequence - 1)
        else:
            append.fail(self._unknown(f"it answered {message.data[:80]!r}"))

    def _connect_to_append(self, give_up: float) -> None:
        """Connect again. Raises AppendUnknown."""
        try:
            self._connect(give_up - time.monotonic())
        except ConnectionError as error:
            raise AppendUnknown(str(error)) from None

    def _connect(self, patience: float) -> None:
        """Connect to the first host that answers. Raises ConnectionError after `patience` seconds."""
        give_up = time.monotonic() + patience
        reasons = ""
        while True:
            attempt = self._attempt = self._attempt or NatsAttempt(self.address, self._hosts, f"{self._inbox}.*")
            self._check_open()
            if attempt.wait(give_up - time.monotonic()):
                self._attempt, self._socket = None, attempt.take()
                if self._socket is not None:
                    return self._check_open()
                reasons = attempt.errors
            if time.monotonic() > give_up or self._closed.wait(_PAUSE):
                reasons = reasons or attempt.errors or "no answer"
                raise ConnectionError(f"NATS at {self.address} cannot be reached: {reasons}")

    def _lose(self, reason: str) -> None:
        """Give up the connection and the answers that are waited for. The host where it was is the last to be asked.

        Other hosts are those of `connect`, and those that the server has told.
        """
        sock = self._socket
        if sock is not None:
            known = dict.fromkeys([*(each for each in self._hosts if each in self._given), *self._given, *sock.others])
            self._hosts = [*(each for each in known if each != sock.host), sock.host]
        self._close()
        waiting, self._waiting = self._waiting, {}
        for append, _ in waiting.values():
            append.fail(self._unknown(reason))

    def _close(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.abandon()

    def _check_open(self) -> None:
        """Raise ConnectionError if this appender was closed, and see to it that the connection is."""
        if self._closed.is_set():
            self._close()
            raise ConnectionError(f"NATS at {self.address}: {_CLOSED}")

    def _unknown(self, reason: str) -> AppendUnknown:
        return AppendUnknown(f"NATS at {self.address} did not acknowledge an append: {reason}")

    def _forget(self, append: NatsAppend) -> None:
        self._waiting = {reply: place for reply, place in self._waiting.items() if place[0] is not append}
