"""The frames of the SASL layer (part 5, section 5.3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from escrowmq.wire.amqp10.codec.composite import BINARY, STRING, SYMBOL, SYMBOLS, UBYTE, composite
from escrowmq.wire.amqp10.codec.types import Symbol

OK: Final = 0
AUTH: Final = 1
SYS: Final = 2
SYS_PERM: Final = 3
SYS_TEMP: Final = 4


@composite(0x40, "amqp:sasl-mechanisms:list", SYMBOLS)
@dataclass(slots=True)
class SaslMechanisms:
    """The mechanisms that the server offers."""

    sasl_server_mechanisms: tuple[Symbol, ...]


@composite(0x41, "amqp:sasl-init:list", SYMBOL, BINARY, STRING)
@dataclass(slots=True)
class SaslInit:
    """The mechanism that the client chose."""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@composite(0x42, "amqp:sasl-challenge:list", BINARY)
@dataclass(slots=True)
class SaslChallenge:
    """Data of the mechanism, from the server."""

    challenge: bytes


@composite(0x43, "amqp:sasl-response:list", BINARY)
@dataclass(slots=True)
class SaslResponse:
    """Data of the mechanism, from the client."""

    response: bytes


@composite(0x44, "amqp:sasl-outcome:list", UBYTE, BINARY)
@dataclass(slots=True)
class SaslOutcome:
    """The result of the login: one of the codes above."""

    code: int
    additional_data: bytes | None = None
