"""A connection that logs in, begins a session and attaches links, on a blocking socket, before the load begins."""

from __future__ import annotations

import socket
from typing import Any, Final

from escrowmq.perf.errors import PerfError, RefusedLogin
from escrowmq.perf.url import Target
from escrowmq.wire.amqp10.codec import frames
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Open,
    decode_performative,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sasl import SaslInit, SaslMechanisms, SaslOutcome
from escrowmq.wire.amqp10.codec.types import Symbol

FRAME_MAX: Final = 128 * 1024
WINDOW: Final = 0x7FFFFFFF
"""The session's incoming window: the consumer's credit is the only limit."""
_DEFAULT_VHOST: Final = "/"


class LinkConnection:
    """A connection with one session. `frame_max` (bytes) is the peer's; `early` are frames that came too early."""

    def __init__(self, target: Target, name: str, timeout: float) -> None:
        """Connect and log in. `timeout` (s) applies to each step.

        Raises PerfError with the reason: no broker answers, it does not speak AMQP 1.0, or it refuses the login.
        """
        self.target = target
        self.early: list[Any] = []
        self.frame_max = frames.MIN_MAX_FRAME_SIZE
        self.window = 0
        self.product = self.version = ""
        self._received = b""
        try:
            self.socket = socket.create_connection((target.host, target.port), timeout)
        except OSError as error:
            raise PerfError(f"cannot connect to the broker at {target.address}: {error.strerror or error}") from None
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._log_in()
            self._open(name)
        except TimeoutError:
            self.socket.close()
            raise PerfError(f"the broker at {target.address} did not answer within {timeout:g} s") from None
        except (OSError, CodecError) as error:
            self.socket.close()
            raise PerfError(f"the broker at {target.address} does not speak AMQP 1.0: {error}") from None
        except BaseException:
            self.socket.close()
            raise

    @property
    def rest(self) -> bytes:
        """The incomplete frame that has been read."""
        return self._received

    def attach(self, attach: Attach) -> Attach:
        """Attach a link, and return the broker's answer. Raises PerfError with the reason of a refusal."""
        self.send(attach)
        answer = None
        while True:
            found = self._next()
            if isinstance(found, Attach) and found.name == attach.name:
                answer = found
                if (found.target if attach.role is False else found.source) is not None:
                    return answer
            elif isinstance(found, Detach):
                reason = "no reason given" if found.error is None else f"{found.error.condition}: "
                text = "" if found.error is None else found.error.description or ""
                raise PerfError(f"the broker refused the link {attach.name}: {reason}{text}")
            else:
                self.early.append(found)

    def send(self, performative: Any) -> None:
        """Send a performative."""
        self.socket.sendall(frames.frame(0, encode_performative(performative)))

    def read(self) -> Any:
        """Return the next performative. Raises PerfError if the broker closes instead."""
        try:
            return self._next()
        except TimeoutError:
            raise PerfError(f"the broker at {self.target.address} did not answer in time") from None

    def close(self) -> None:
        """Close the connection; the broker need not answer."""
        try:
            self.socket.setblocking(True)
            self.socket.settimeout(1.0)
            self.send(Close())
            while self.socket.recv(65536):
                pass
        except OSError:
            pass  # the measurement is over, so the error no longer matters
        finally:
            self.socket.close()

    def _log_in(self) -> None:
        self.socket.sendall(frames.SASL_HEADER)
        self._header(frames.SASL_HEADER)
        offered = self._expect(SaslMechanisms)
        names = [str(name) for name in offered.sasl_server_mechanisms]
        plain = "PLAIN" in names
        target = self.target
        response = b"\0" + target.user.encode() + b"\0" + target.password.encode() if plain else b"perf"
        init = SaslInit(mechanism=Symbol("PLAIN" if plain else "ANONYMOUS"), initial_response=response)
        self.socket.sendall(frames.frame(0, encode_performative(init), type=frames.SASL))
        outcome = self._expect(SaslOutcome)
        if outcome.code:
            raise RefusedLogin(target.address, target.user, f"SASL outcome {outcome.code}")
        self.socket.sendall(frames.PROTOCOL_HEADER)
        self._header(frames.PROTOCOL_HEADER)

    def _open(self, name: str) -> None:
        target = self.target
        host = target.host if target.vhost == _DEFAULT_VHOST else f"vhost:{target.vhost}"
        self.send(Open(name, hostname=host, max_frame_size=FRAME_MAX, channel_max=0))
        opened = self._expect(Open)
        self.frame_max = min(int(opened.max_frame_size), FRAME_MAX)
        properties = opened.properties or {}
        self.product, self.version = str(properties.get("product", "")), str(properties.get("version", ""))
        self.send(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        self.window = int(self._expect(Begin).incoming_window)

    def _header(self, wanted: bytes) -> None:
        found = self._take(len(wanted))
        if found != wanted:
            raise PerfError(f"the server at {self.target.address} does not speak AMQP 1.0; it offered {found!r}")

    def _expect(self, kind: type) -> Any:
        found = self._next()
        if not isinstance(found, kind):
            raise PerfError(f"the broker sent {type(found).__name__} instead of {kind.__name__}: {found}")
        return found

    def _next(self) -> Any:
        while True:
            head = self._take(8)
            size, offset = int.from_bytes(head[:4], "big"), head[4] * 4
            if not 8 <= offset <= size <= 1 << 24:
                raise PerfError(f"the server at {self.target.address} does not speak AMQP 1.0; it sent {head!r}")
            body = self._take(size - 8)[offset - 8 :]
            if body:
                found = decode_performative(body)[0]
                raise_if_closed(found)
                return found

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self.socket.recv(65536)
            if not data:
                raise PerfError(
                    f"the broker at {self.target.address} closed the connection without giving a reason "
                    "(wrong user, password or virtual host?)"
                )
            self._received += data
        taken, self._received = self._received[:size], self._received[size:]
        return taken


def raise_if_closed(performative: Any) -> None:
    """Raise PerfError with the broker's reason if the performative is close, end, or detach."""
    if isinstance(performative, Close | End) or (isinstance(performative, Detach) and performative.error is not None):
        error = performative.error
        text = "without a reason" if error is None else f"{error.condition} {error.description or ''}"
        what = {Close: "connection", End: "session", Detach: "link"}[type(performative)]
        raise PerfError(f"the broker closed the {what}: {text}")
