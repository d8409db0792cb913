"""The check of one token: its signature, its claims, and the rights that its scopes grant.

A token is a JWT (RFC 7519) with one signature, in compact form. What its header says about keys is not trusted: `kid`
only chooses among the keys of the issuer, each of which has its own algorithms, so a public key is never used as a
secret. The functions may run on any thread.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from escrowmq.core.access.grant import Grant
from escrowmq.server.tokens.keys import IssuerKey

LONGEST: Final = 12_288
"""The maximum length of a token. It fits into one frame of a client that has not logged in."""
MOST_SCOPES: Final = 1000
"""The scopes of a token that concern this broker."""
LONGEST_NAME: Final = 255
"""Bytes of a user's name."""
_MOST_TRIED: Final = 8
"""Keys that are tried for a token that does not name its key."""
_PART: Final = re.compile(r"[A-Za-z0-9_-]+")


class TokenRefused(Exception):  # noqa: N818 - named for what happened
    """A token is refused. The text has the reason for the log, and nothing of the token but what has been verified."""


class UnknownKey(TokenRefused):
    """No key has the id that the token names. The issuer may have a new one."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What tokens must have; the section `tokens` of the configuration."""

    issuer: str
    audience: str
    prefix: str
    """The beginning of scopes that concern this broker."""
    algorithms: frozenset[str]
    user_claim: str
    scope_claim: str
    leeway: float
    """Seconds by which clocks may differ."""


def is_token(text: str) -> bool:
    """Return whether this is a token rather than a password: three parts, the first of which is the header of one."""
    parts = text.split(".")
    return len(parts) == 3 and parts[0].startswith("ey") and len(text) > len(parts[0]) + 2 and _is_header(parts[0])


def _is_header(part: str) -> bool:
    try:
        return "alg" in _document(part)
    except TokenRefused:
        return False


def verified(token: str, keys: Sequence[IssuerKey], rules: TokenRules, now: float) -> Grant:
    """Return what a token grants at the time `now`, in seconds since the epoch. Raises TokenRefused."""
    if len(token) > LONGEST:
        raise TokenRefused(f"the token is longer than {LONGEST} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("the token is malformed")
    header, claims = _document(parts[0]), _document(parts[1])
    _check_signature(header, token, keys, rules.algorithms)
    return _granted(claims, rules, now)


def _check_signature(header: dict[str, Any], token: str, keys: Sequence[IssuerKey], allowed: frozenset[str]) -> None:
    algorithm, ident = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in allowed:
        raise TokenRefused("the token's algorithm is not one of `tokens.algorithms`")
    if "crit" in header:
        raise TokenRefused("the token's header has an extension that must be understood, and is not")
    if ident is None:
        chosen = [each for each in keys if algorithm in each.algorithms][:_MOST_TRIED]
    else:
        chosen = [each for each in keys if each.id == ident]
    if not chosen:
        raise UnknownKey("the token's key is not one of the issuer's")
    signed, _, signature = token.rpartition(".")
    fits = [each for each in chosen if algorithm in each.algorithms]
    if not any(_is_signed(algorithm, signed.encode(), _decoded(signature), each.key) for each in fits):
        raise TokenRefused("the token's signature is wrong")


def _is_signed(algorithm: str, signed: bytes, signature: bytes, key: Any) -> bool:
    from joserfc.jws import JWSRegistry

    model = JWSRegistry.algorithms[algorithm]
    try:
        model.check_key(key)
        return bool(model.verify(signed, signature, key))
    except Exception:  # noqa: BLE001 - whatever a library finds, the signature is not proved
        return False


def _granted(claims: dict[str, Any], rules: TokenRules, now: float) -> Grant:
    """Check the claims of a token whose signature is right. Raises TokenRefused."""
    if claims.get("iss") != rules.issuer:
        raise TokenRefused("the token is of another issuer")
    audience = claims.get("aud")
    if rules.audience not in (audience if isinstance(audience, list) else [audience]):
        raise TokenRefused("the token is for another audience")
    expires = _time(claims, "exp")
    if expires is None:
        raise TokenRefused("the token has no expiry, `exp`")
    if expires + rules.leeway <= now:
        raise TokenRefused("the token has expired")
    begins = _time(claims, "nbf")
    if begins is not None and begins - rules.leeway > now:
        raise TokenRefused("the token is not valid yet")
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not user or not user.isprintable() or len(user.encode()) > LONGEST_NAME:
        raise TokenRefused(
            f"the token's claim `{rules.user_claim}` is not a user name of 1 to {LONGEST_NAME} printable bytes"
        )
    return Grant(user, _scopes(claims.get(rules.scope_claim, ""), rules), int((expires + rules.leeway) * 1000))


def _time(claims: dict[str, Any], name: str) -> float | None:
    """Return a time; None if the token has none. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LATEST:
        raise TokenRefused(f"the token's claim `{name}` is not a time")
    return value


_LATEST: Final = math.ldexp(1, 50)
"""Times in seconds from this one on are refused; none of them is meant."""


def _scopes(claim: object, rules: TokenRules) -> list[str]:
    """Return the scopes that concern this broker, without their prefix. Raises TokenRefused."""
    given = claim.split(" ") if isinstance(claim, str) else claim
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise TokenRefused(f"the token's claim `{rules.scope_claim}` is neither a text nor a list of texts")
    found = [each.removeprefix(rules.prefix) for each in given if each.startswith(rules.prefix) and each]
    if len(found) > MOST_SCOPES:
        raise TokenRefused(f"the token has more than {MOST_SCOPES} scopes for this broker")
    return found


def _document(part: str) -> dict[str, Any]:
    """Return the JSON object in a part of a token. Raises TokenRefused."""
    try:
        found = json.loads(_decoded(part))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TokenRefused("the token is malformed")
    return found


def _decoded(part: str) -> bytes:
    """Decode Base64url without padding (RFC 7515, section 2). Raises TokenRefused."""
    if _PART.fullmatch(part) is None or len(part) % 4 == 1:
        raise TokenRefused("the token is malformed")
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
