"""The start of a connection: protocol headers, and SASL as its client."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from escrowmq.amqp10.errors import LoginRefused, ProtocolViolation
from escrowmq.amqp10.parameters import Parameters
from escrowmq.wire.amqp10.codec import frames
from escrowmq.wire.amqp10.codec.performatives import decode_performative, encode_performative
from escrowmq.wire.amqp10.codec.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.scram.client import ClientExchange
from escrowmq.wire.scram.keys import HASHES
from escrowmq.wire.scram.messages import ScramError

_CODES: Final = {
    1: "the user or the password is wrong",
    2: "the peer had a system error",
    3: "the peer had a permanent system error",
    4: "the peer had a temporary system error; try again",
}
_HEADER_SIZE: Final = 8
_NONCE_BYTES: Final = 18


class LoginSteps:
    """The steps before open. When `done` is true, frames of AMQP follow."""

    def __init__(self, wanted: Parameters, send: Callable[[bytes], None]) -> None:
        self.done = False
        self._wanted = wanted
        self._send = send
        self._sasl = wanted.mechanism != "NONE"
        self._mechanism = ""
        self._exchange: ClientExchange | None = None
        self._verified = True
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
            self._begin(tuple(map(str, frame.sasl_server_mechanisms)))
        elif isinstance(frame, SaslChallenge) and self._exchange is not None:
            self._answer(self._exchange, frame.challenge)
        elif isinstance(frame, SaslOutcome):
            if frame.code:
                raise LoginRefused(
                    f"{wanted.address} refused the login of {wanted.user or 'anonymous'} ({self._mechanism}): "
                    + _CODES.get(int(frame.code), f"SASL code {frame.code}")
                )
            if self._exchange is not None and not self._verified:
                self._verify(self._exchange, frame.additional_data or b"")
            self._header, self._awaits_header = frames.PROTOCOL_HEADER, True
            self._send(frames.PROTOCOL_HEADER)
        else:
            raise LoginRefused(f"{wanted.address} sent {type(frame).__name__}, which {self._mechanism} does not need")

    def _begin(self, offered: tuple[str, ...]) -> None:
        wanted = self._wanted
        self._mechanism = next((each for each in wanted.logins if each in offered), "")
        if not self._mechanism:
            raise LoginRefused(
                f"{wanted.address} offers {', '.join(offered) or 'no mechanisms'}, not {' or '.join(wanted.logins)}; "
                "give a user and a password, or another mechanism"
            )
        if self._mechanism in HASHES:
            nonce = secrets.token_urlsafe(_NONCE_BYTES)
            self._exchange = ClientExchange(self._mechanism, wanted.user, wanted.password, nonce)
            self._verified = False
            initial = self._exchange.first()
        else:
            initial = response(wanted, self._mechanism)
        init = SaslInit(mechanism=Symbol(self._mechanism), initial_response=initial, hostname=wanted.hostname)
        self._send(frames.frame(0, encode_performative(init), type=frames.SASL))

    def _answer(self, exchange: ClientExchange, challenge: bytes) -> None:
        """Answer a challenge: the first one with the proof, a second one, which has the signature, with nothing."""
        answer = b""
        if challenge.startswith((b"v=", b"e=")):
            self._verify(exchange, challenge)
        else:
            try:
                answer = exchange.final(challenge)
            except ScramError as error:
                raise LoginRefused(f"{self._wanted.address} sent an unacceptable challenge: {error}") from None
        self._send(frames.frame(0, encode_performative(SaslResponse(answer)), type=frames.SASL))

    def _verify(self, exchange: ClientExchange, server_final: bytes) -> None:
        try:
            exchange.verify(server_final)
        except ScramError as error:
            raise LoginRefused(f"{self._wanted.address} cannot be trusted with this login: {error}") from None
        self._verified = True


def response(wanted: Parameters, mechanism: str) -> bytes:
    """Return the initial response of a mechanism with one step."""
    match mechanism:
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
