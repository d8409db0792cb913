"""The connection's socket. It reads while it writes, so neither side can block the other, and it sends heartbeats."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from escrowmq.client.errors import ConnectionClosed, Timeout
from escrowmq.client.parameters import Parameters
from escrowmq.wire.amqp091.frames import HEARTBEAT

RECEIVE_SIZE: Final = 256 * 1024
_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""The SO_LINGER value that makes `close` drop unsent data and reset the connection."""
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def dial(wanted: Parameters, deadline: float) -> socket.socket:
    """Open a TCP or TLS connection and make it non-blocking. `deadline` is a time of `time.monotonic()`.

    Raises:
        ConnectionClosed: The connection could not be opened.
        Timeout: The deadline has passed.
    """
    left = max(deadline - time.monotonic(), 0.001)
    try:
        sock = socket.create_connection((wanted.host, wanted.port), left)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if wanted.ssl_context is not None:
                sock.settimeout(max(deadline - time.monotonic(), 0.001))
                sock = wanted.ssl_context.wrap_socket(sock, server_hostname=wanted.server_name or wanted.host)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
    except TimeoutError:
        raise Timeout(f"{wanted.address} did not answer within {wanted.connection_timeout:g} s") from None
    except OSError as error:
        raise ConnectionClosed(0, str(error.strerror or error), where=wanted.address) from error
    return sock


class Transport:
    """Sends and receives bytes. All calls come from one thread; `start_thread` adds a second one for heartbeats.

    `receive` is called with the data that was read, also while other data is being written. It may call `queue` to
    answer. A socket error is raised as ConnectionClosed and is final.
    """

    def __init__(self, sock: socket.socket, receive: Callable[[bytes], None], peer: str) -> None:
        self.peer = peer
        self._sock = sock
        self._fd = sock.fileno()
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._receive = receive
        self._buffer = bytearray(RECEIVE_SIZE)
        self._view = memoryview(self._buffer)
        self._unsent: deque[memoryview] = deque()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._mask = select.POLLIN
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._poll.register(self._woken, select.POLLIN)
        self._interval = 0.0
        now = time.monotonic()
        self._sent_at = now
        self._received_at = now
        self._lock = threading.Lock()  # guards the socket and `_unsent`; uncontended without the thread
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def set_heartbeat(self, seconds: int) -> None:
        """Set the heartbeat interval in seconds; 0 disables heartbeats.

        A heartbeat is sent when nothing was sent for half of the interval. The connection is lost when nothing was
        received for twice the interval.
        """
        self._interval = float(seconds)

    def start_thread(self) -> None:
        """Start the thread that sends heartbeats while the application makes no calls."""
        if self._interval and self._thread is None:
            self._thread = threading.Thread(target=self._beat, name=f"heartbeat {self.peer}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Close the socket at once."""
        self._stop.set()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(1.0)
        for sock in (self._sock, self._woken, self._waker):
            sock.close()

    def abort(self) -> None:
        """Reset the connection. The peer notices even if it does not read, and discards unread data."""
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.close()

    def wake(self) -> None:
        """Make the current or next `turn` return. May be called from any thread."""
        with contextlib.suppress(OSError):  # the buffer is full, so a wake-up is pending; or the connection is closed
            self._waker.send(b".")

    @property
    def writing(self) -> bool:
        """Whether queued data has not been sent completely."""
        return bool(self._unsent)

    def queue(self, data: bytes | memoryview) -> None:
        """Queue data to be sent at the next opportunity."""
        if data:
            self._unsent.append(memoryview(data))

    def send(self, data: bytes | memoryview, timeout: float | None) -> None:
        """Send all of `data`, reading meanwhile.

        Raises Timeout when nothing could be sent or read for `timeout` seconds; the connection is then unusable.
        """
        self.queue(data)
        self._flush()
        if self._unsent:
            self.drain(timeout)

    def drain(self, timeout: float | None) -> None:
        """Send all queued data. Raises Timeout when nothing could be sent or read for `timeout` seconds."""
        while self._unsent:
            if not self.turn(timeout):
                raise Timeout(f"{self.peer} accepted no data for {timeout:g} s")

    def turn(self, timeout: float | None) -> bool:
        """Wait until data can be read, or queued data written, and do that. Returns False after `timeout` seconds.

        A `timeout` of None waits without limit.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._keep_alive()
            if self._tls_pending():
                if self._read():
                    return True
                continue
            mask = select.POLLIN | select.POLLOUT if self._unsent else select.POLLIN
            if mask != self._mask:
                self._poll.modify(self._sock, mask)
                self._mask = mask
            events = self._poll.poll(self._milliseconds(deadline))
            if events:
                if self._see_to(events):
                    return True
            elif deadline is not None and time.monotonic() >= deadline:
                return False
            else:
                self._check_peer()

    def flush(self) -> bool:
        """Send as much queued data as the socket accepts without waiting. Returns whether anything was sent."""
        return self._flush()

    def poll(self) -> None:
        """Read the data that has arrived, without waiting."""
        while self._tls_pending() or any(
            fd == self._fd and event & ~select.POLLOUT for fd, event in self._poll.poll(0)
        ):
            if not self._read():
                return

    # -- inside

    def _see_to(self, events: list[tuple[int, int]]) -> bool:
        """Write and read as the events allow. Returns whether anything was done."""
        done = False
        for fd, event in events:
            if fd == self._fd:
                done |= bool(event & select.POLLOUT) and self._flush()
                done |= bool(event & ~select.POLLOUT) and self._read()
            else:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                done = True
        return done

    def _tls_pending(self) -> bool:
        return self._tls and self._sock.pending() > 0  # type: ignore[attr-defined]

    def _milliseconds(self, deadline: float | None) -> float | None:
        """Return how long to poll: until the deadline, or until a heartbeat may be due."""
        waits = []
        if deadline is not None:
            waits.append(max(deadline - time.monotonic(), 0.0))
        if self._interval:
            waits.append(self._interval / 4)
        return min(waits) * 1000 if waits else None

    def _flush(self) -> bool:
        """Send as much queued data as the socket accepts. Returns whether anything was sent."""
        sent = False
        try:
            with self._lock:
                while self._unsent:
                    view = self._unsent[0]
                    count = self._sock.send(view)
                    sent = True
                    if count == len(view):
                        self._unsent.popleft()
                    else:
                        self._unsent[0] = view[count:]
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            self._lost(error)
        if sent:
            self._sent_at = time.monotonic()
        return sent

    def _read(self) -> bool:
        """Read once. Returns whether any data arrived."""
        try:
            with self._lock:
                count = self._sock.recv_into(self._buffer)
        except _WOULD_BLOCK:
            return False
        except OSError as error:
            raise ConnectionClosed(0, str(error.strerror or error), where=self.peer) from error
        if not count:
            raise ConnectionClosed(0, "the broker closed the connection without a reason", where=self.peer)
        self._received_at = time.monotonic()
        self._receive(bytes(self._view[:count]))
        return True

    def _lost(self, error: OSError) -> None:
        """Raise the error of a failed write, after reading: the broker may have sent the reason before it closed."""
        while self._read():
            pass
        raise ConnectionClosed(0, str(error.strerror or error), where=self.peer) from error

    def _keep_alive(self) -> None:
        if self._interval and not self._unsent and time.monotonic() - self._sent_at >= self._interval / 2:
            self.queue(HEARTBEAT)
            self._flush()

    def _check_peer(self) -> None:
        """Raise ConnectionClosed if the peer has been silent for too long.

        Called only when there is nothing to read: heartbeats may have arrived while the application made no calls.
        """
        silent = time.monotonic() - self._received_at
        if self._interval and silent > 2 * self._interval:
            raise ConnectionClosed(
                0, f"the broker sent nothing for {silent:.0f} s, not even a heartbeat", where=self.peer
            )

    def _beat(self) -> None:
        """Run the heartbeat thread. It never reads, and writes only between frames."""
        while not self._stop.wait(self._interval / 4):
            if time.monotonic() - self._sent_at < self._interval / 2 or not self._lock.acquire(blocking=False):
                continue
            try:
                if not self._unsent:
                    rest = memoryview(HEARTBEAT)[self._sock.send(HEARTBEAT) :]
                    if rest:
                        self._unsent.appendleft(rest)
                    self._sent_at = time.monotonic()
            except OSError:
                continue  # the thread that uses the connection will get the error
            finally:
                self._lock.release()
