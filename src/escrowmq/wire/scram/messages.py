"""The messages of SCRAM (RFC 5802, section 7): lists of attributes, `a=value`, with commas between them."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ITERATIONS: Final = re.compile(r"[1-9][0-9]{0,8}")
_STRAY_EQUALS: Final = re.compile(r"=(?!2C|3D)")


class ScramError(ValueError):
    """A malformed or unacceptable message. The text names the fault and contains nothing of the message."""


class ClientFirst(NamedTuple):
    """The first message of a client."""

    gs2_header: str
    user: str
    nonce: str
    bare: str
    """The message without the GS2 header; the proof covers it."""


class ServerFirst(NamedTuple):
    """The first message of a server."""

    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """The second message of a client."""

    proof: bytes
    without_proof: str
    """The message up to the proof, which covers it."""


def read_client_first(data: bytes) -> ClientFirst:
    """Raises ScramError. Channel binding is refused, because no mechanism with `-PLUS` is offered."""
    text = _text(data)
    flag, comma, rest = text.partition(",")
    authzid, second_comma, bare = rest.partition(",")
    if flag.startswith("p="):
        raise ScramError("channel binding is not supported")
    if flag not in ("n", "y") or not comma or not second_comma:
        raise ScramError("the GS2 header is malformed")
    if authzid and not authzid.startswith("a="):
        raise ScramError("the GS2 header is malformed")
    attributes = bare.split(",")
    if attributes[0].startswith("m="):
        raise ScramError("the mandatory extension is not supported")
    if len(attributes) < 2 or not attributes[0].startswith("n=") or not attributes[1].startswith("r="):
        raise ScramError("expected a user name and a nonce")
    user = unescape(attributes[0][2:])
    if not user:
        raise ScramError("the user name is empty")
    if authzid and unescape(authzid[2:]) != user:
        raise ScramError("acting as another user is not supported")
    return ClientFirst(f"{flag},{authzid},", user, _nonce(attributes[1][2:]), bare)


def read_client_final(data: bytes, gs2_header: str, nonce: str) -> ClientFinal:
    """Raises ScramError if the message is malformed, or repeats another GS2 header or nonce than those given."""
    text = _text(data)
    without_proof, found, proof = text.rpartition(",p=")
    attributes = without_proof.split(",")
    if not found or len(attributes) < 2 or not attributes[0].startswith("c=") or not attributes[1].startswith("r="):
        raise ScramError("expected the channel binding, the nonce and the proof")
    if _decoded(attributes[0][2:]) != gs2_header.encode():
        raise ScramError("the channel binding is not that of the first message")
    if attributes[1][2:] != nonce:
        raise ScramError("the nonce is not that of this login")
    return ClientFinal(_decoded(proof), without_proof)


def read_server_first(data: bytes, client_nonce: str) -> ServerFirst:
    """Raises ScramError, also if the nonce does not begin with that of the client, or adds nothing to it."""
    attributes = _text(data).split(",")
    if attributes[0].startswith("m="):
        raise ScramError("the server demands an extension that is not supported")
    if len(attributes) < 3 or [each[:2] for each in attributes[:3]] != ["r=", "s=", "i="]:
        raise ScramError("expected the nonce, the salt and the iterations")
    nonce, salt, iterations = (each[2:] for each in attributes[:3])
    if not _nonce(nonce).startswith(client_nonce) or nonce == client_nonce:
        raise ScramError("the nonce does not continue that of this login")
    if not salt or not _ITERATIONS.fullmatch(iterations):
        raise ScramError("the salt or the number of iterations is malformed")
    return ServerFirst(nonce, _decoded(salt), int(iterations))


def read_server_final(data: bytes) -> bytes:
    """Return the server's signature. Raises ScramError, also if the server reports an error."""
    attribute = _text(data).split(",")[0]
    if attribute.startswith("e="):
        raise ScramError("the server refused the proof")
    if not attribute.startswith("v="):
        raise ScramError("expected the server's signature")
    return _decoded(attribute[2:])


def escape(name: str) -> str:
    """Return a user name in the form of messages."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    """Return a user name of a message. Raises ScramError."""
    if _STRAY_EQUALS.search(name):
        raise ScramError("the user name has an equals sign that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")


def _nonce(text: str) -> str:
    if not _NONCE.fullmatch(text):
        raise ScramError("the nonce is empty or has characters that are not allowed")
    return text


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None
    if "\0" in text:
        raise ScramError("NUL in the message")
    return text


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ScramError("not Base64") from None
