"""Signatures by access keys, of both generations: HMAC-SHA1 under the secret key.

gRPC signs one header, in hexadecimal digits. Classic remoting signs the values of all extension fields in the order of
their names, and the body, in base64.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

SIGNATURE: Final = "Signature"
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_WITHOUT_QUERY: Final = 393
"""Version 4.9.3; clients up to it do not sign the field for queries by unique key."""


class SignedProof(NamedTuple):
    """The octets that were signed, and the signature in lower-case hexadecimal digits."""

    signed: bytes
    signature: str

    def fits(self, secret: bytes) -> bool:
        """Return whether the signature was made with this secret key. The comparison takes constant time."""
        return hmac.compare_digest(
            hex_signature(secret, self.signed).encode(), self.signature.encode("utf-8", "replace")
        )


def hex_signature(secret: bytes, signed: bytes) -> str:
    """Return the signature of gRPC."""
    return hmac.new(secret, signed, hashlib.sha1).hexdigest()


def remoting_proof(fields: Mapping[str, str], body: bytes, version: int) -> SignedProof:
    """Return the proof in a request of classic remoting. `fields` are as they were sent, the signature included."""
    left_out = {SIGNATURE, _UNIQUE_KEY_QUERY} if version <= _WITHOUT_QUERY else {SIGNATURE}
    values = [value for name, value in sorted(fields.items()) if name not in left_out]
    signed = "".join(values).encode("utf-8", "surrogateescape") + body
    try:
        signature = base64.b64decode(fields.get(SIGNATURE, ""), validate=True).hex()
    except ValueError:
        signature = ""
    return SignedProof(signed, signature)
