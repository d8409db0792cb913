"""The public keys by which an issuer's tokens are checked, from a key set in JSON (RFC 7517).

Only asymmetric keys are read. A key set may be public, so a symmetric key in it would let anybody sign tokens.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

LONGEST: Final = 1 << 20
"""The maximum size of a key set in bytes."""
MOST: Final = 100
"""The maximum number of keys in a key set."""
LEAST_RSA_BITS: Final = 2048
MOST_RSA_BITS: Final = 16_384
ALGORITHMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA", "Ed25519"),
}
"""The algorithms of each type and curve of key."""
_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")
_PEM: Final = b"-----BEGIN"


class KeysFault(Exception):  # noqa: N818 - named for what it tells
    """A key set cannot be used. The text says why."""


class IssuerKey(NamedTuple):
    """A public key, with its id, which may be missing, and the algorithms for which it is meant."""

    id: str | None
    algorithms: frozenset[str]
    key: Any


def parsed(data: bytes) -> tuple[IssuerKey, ...]:
    """Return the keys of a key set that can be used. Raises KeysFault if there is none, or the data is no key set."""
    if data.lstrip().startswith(_PEM):
        raise KeysFault("it is in PEM; a key set in JSON is needed (RFC 7517)")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise KeysFault("it is not JSON") from None
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise KeysFault("it is not a key set, a JSON object with the list `keys`")
    if len(found) > MOST:
        raise KeysFault(f"it has more than {MOST} keys")
    keys = tuple(key for each in found if isinstance(each, dict) and (key := _imported(each)) is not None)
    if not keys:
        raise KeysFault(
            f"none of its {len(found)} keys can check signatures: those of the types RSA, with at least "
            f"{LEAST_RSA_BITS} bits, EC and OKP (Ed25519) can"
        )
    return keys


def _imported(jwk: Mapping[str, Any]) -> IssuerKey | None:
    """Return a key; None if it is not one for signatures, or is malformed. Of a private key, the public part counts."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    public = {name: jwk[name] for name in _PUBLIC if name in jwk}
    ident, use, operations = jwk.get("kid"), jwk.get("use", "sig"), jwk.get("key_ops", ["verify"])
    if not all(isinstance(value, str) for value in public.values()) or not isinstance(ident, str | None):
        return None
    known = ALGORITHMS.get((public.get("kty", ""), public.get("crv", "")), ())
    algorithms = frozenset(each for each in known if jwk.get("alg", each) == each)
    if not algorithms or use != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        if public["kty"] == "RSA" and not LEAST_RSA_BITS <= _bits(public["n"]) <= MOST_RSA_BITS:
            return None
        return IssuerKey(ident, algorithms, JWKRegistry.import_key(public))
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def _bits(number: str) -> int:
    """Return the length of a number in Base64url. Raises ValueError."""
    return int.from_bytes(base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))).bit_length()
