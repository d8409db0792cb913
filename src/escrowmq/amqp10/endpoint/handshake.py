"""The start of a connection: protocol headers, and SASL as its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.amqp10.errors import LoginRefused, ProtocolViolation
from escrowmq.amqp10.parameters import Parameters
from escrowmq.wire.amqp10.codec import frames
from escrowmq.wire.amqp10.codec.performatives import decode_performative, encode_performative
from escrowmq.wire.amqp10.codec.sasl import SaslInit, SaslMechanisms, SaslOutcome
from escrowmq.wire.amqp10.codec.types import Symbol

_CODES: Final = {
    1: "the user or the password is wrong",
    2: "the peer had a system error",
    3: "the peer had a permanent system error",
    4: "the peer had a temporary system error; try again",
}
_HEADER_SIZE: Final = 8


class LoginSteps:
    """The steps before open. When `done` is true, frames of AMQP follow."""

    def __init__(self, wanted: Parameters, send: Callable[[bytes], None]) -> None:
        self.done = False
        self._wanted = wanted
        self._send = send
        self._sasl = wanted.login != "NONE"
        self._header = frames.SASL_HEADER if self._sasl else frames.PROTOCOL_HEADER
        self._awaits_header = True
        send(self._header)

    def advance(self, reader: frames.FrameReader) -> None:
        """Take as much of the input as belongs to the handshake.

        Raises:
            LoginRefused: The peer refused the login, or speaks another protocol.
            ProtocolViolation: The peer broke the rules of the handshake.
        """
        while not self.done:
            if self._awaits_header:
                header = reader.take(_HEADER_SIZE)
                if header is None:
                    return
                self._take_header(header)
            else:
                frame = reader.next()
                if frame is None:
                    return
                if frame[0] != frames.SASL:
                    raise ProtocolViolation(f"{self._wanted.address} sent a frame of type {frame[0]} during the login")
                self._take_sasl(decode_performative(frame[2], frame[3], frame[4])[0])

    def _take_header(self, header: bytes) -> None:
        if header != self._header:
            raise LoginRefused(
                f"{self._wanted.address} answered with the protocol header {header!r}, not {self._header!r}; "
                + _advice(header, self._sasl)
            )
        self._awaits_header = False
        self.done = self._header == frames.PROTOCOL_HEADER

    def _take_sasl(self, frame: object) -> None:
        wanted = self._wanted
        if isinstance(frame, SaslMechanisms):
            offered = tuple(map(str, frame.sasl_server_mechanisms))
            if wanted.login not in offered:
                raise LoginRefused(
                    f"{wanted.address} offers {', '.join(offered) or 'no mechanisms'}, not {wanted.login}; "
                    "give a user and a password, or another mechanism"
                )
            init = SaslInit(mechanism=Symbol(wanted.login), initial_response=response(wanted), hostname=wanted.hostname)
            self._send(frames.frame(0, encode_performative(init), type=frames.SASL))
        elif isinstance(frame, SaslOutcome):
            if frame.code:
                raise LoginRefused(
                    f"{wanted.address} refused the login of {wanted.user or 'anonymous'} ({wanted.login}): "
                    + _CODES.get(int(frame.code), f"SASL code {frame.code}")
                )
            self._header, self._awaits_header = frames.PROTOCOL_HEADER, True
            self._send(frames.PROTOCOL_HEADER)
        else:
            raise LoginRefused(f"{wanted.address} sent {type(frame).__name__}, which {wanted.login} does not need")


def response(wanted: Parameters) -> bytes:
    """Return the initial response of the mechanism."""
    match wanted.login:
        case "PLAIN":
            return b"\0" + wanted.user.encode() + b"\0" + wanted.password.encode()
        case "ANONYMOUS":
            return b"escrowmq"
        case _:
            return wanted.user.encode()


def _advice(header: bytes, sasl: bool) -> str:
    if header == frames.SASL_HEADER:
        return "it demands SASL, so leave the mechanism empty"
    if header == frames.PROTOCOL_HEADER and sasl:
        return "it offers no SASL, so use the mechanism NONE"
    if header == frames.TLS_HEADER:
        return "it demands TLS, so use amqps://"
    return "it does not speak AMQP 1.0 on this port"
