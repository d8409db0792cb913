"""SASL mechanisms, server side: parsing of the only response of the mechanisms that have one step.

This module only parses. The server's authentication checks the password or the certificate. SCRAM, which has several
steps, is in `wire.scram`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from escrowmq.wire.scram.server import Proof

MECHANISMS: Final = ("PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS")
"""The mechanisms that `parse` knows."""

TOKEN: Final = "token"  # noqa: S105 - it is no secret
"""The `mechanism` of a token that comes on another way than SASL, as the password."""

ANONYMOUS_USER: Final = "anonymous"
"""The `authcid` of an ANONYMOUS login. The client's trace text identifies nobody and is dropped."""


class SaslError(ValueError):
    """The response does not fit its mechanism. The text names the fault and never contains the response."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity that a client claims.

    `authcid` is the user name; it is empty if the certificate (EXTERNAL) or a token alone determines the user.
    `password` is None if the mechanism has none. It is left out of the representation. `proof` is that of SCRAM.
    """

    mechanism: str
    authcid: str
    password: str | None = field(default=None, repr=False)
    proof: Proof | None = field(default=None, repr=False)


def parse(
    mechanism: str, response: bytes, decode_fields: Callable[[bytes], Mapping[str, object]] | None = None
) -> Credentials:
    """Return the credentials in the initial response of `mechanism`.

    `decode_fields` reads a field table without its length. Only protocols with such tables offer AMQPLAIN. Raises
    SaslError for a malformed response and for a mechanism that is unknown or has no decoder, and any error that
    `decode_fields` raises for a malformed table.
    """
    match mechanism:
        case "PLAIN":
            return parse_plain(response)
        case "AMQPLAIN" if decode_fields is not None:
            return parse_amqplain(response, decode_fields)
        case "EXTERNAL":
            return parse_external(response)
        case "ANONYMOUS":
            return parse_anonymous(response)
    raise SaslError("unknown SASL mechanism")


def parse_plain(response: bytes) -> Credentials:
    """RFC 4616: authzid NUL authcid NUL password, all UTF-8. Raises SaslError.

    A client may not act as another user: an authzid that differs from the authcid is refused. The user name may be
    empty, because some clients leave it out if the password is a token; otherwise no such user exists.
    """
    parts = response.split(b"\x00")
    if len(parts) != 3:
        raise SaslError("PLAIN: expected authzid, authcid and password with NUL between them")
    authzid, authcid, password = (_text("PLAIN", part) for part in parts)
    if not password:
        raise SaslError("PLAIN: empty password")
    if authzid and authzid != authcid:
        raise SaslError("PLAIN: acting as another user is not supported")
    return Credentials("PLAIN", authcid, password)


def parse_amqplain(response: bytes, decode_fields: Callable[[bytes], Mapping[str, object]]) -> Credentials:
    """Return a field table with the strings LOGIN and PASSWORD (AMQP 0-8; RabbitMQ's clients still offer it).

    Raises SaslError, and any error that `decode_fields` raises for a malformed table.
    """
    fields = decode_fields(response)
    login, password = fields.get("LOGIN"), fields.get("PASSWORD")
    if not isinstance(login, str) or not isinstance(password, str):
        raise SaslError("AMQPLAIN: LOGIN or PASSWORD is missing or not a string")
    if not password:
        raise SaslError("AMQPLAIN: empty password")
    return Credentials("AMQPLAIN", login, password)


def parse_external(response: bytes) -> Credentials:
    """RFC 4422, appendix A: the authzid in UTF-8 without NUL; it is often empty. Raises SaslError."""
    if b"\x00" in response:
        raise SaslError("EXTERNAL: NUL in the name")
    return Credentials("EXTERNAL", _text("EXTERNAL", response))


def parse_anonymous(response: bytes) -> Credentials:
    """RFC 4505: at most 255 characters of trace text in UTF-8, without NUL. Raises SaslError."""
    if b"\x00" in response or len(_text("ANONYMOUS", response)) > 255:
        raise SaslError("ANONYMOUS: trace text with NUL or over 255 characters")
    return Credentials("ANONYMOUS", ANONYMOUS_USER)


def _text(mechanism: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SaslError(f"{mechanism}: the user name or the password is not valid UTF-8") from None
