"""The identity that a call claims, in its `authorization` header.

The header is `MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=HEX`. The signature is the
HMAC-SHA1 of the header x-mq-date-time under the secret key; nothing else is signed. Clients stamp local time as if it
were UTC, so the time is not compared with ours. Some clients send an empty credential if they have no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from escrowmq.wire.rocketmq.grpc.status import GrpcFault, GrpcStatus
from escrowmq.wire.rocketmq.signature import SignedProof

_SCHEME: Final = "MQv2-HMAC-SHA1"
_LONGEST: Final = 1024


class Claim(NamedTuple):
    """An access key, which is empty for a client without one, and the proof that the client has its secret."""

    access_key: str
    proof: SignedProof | None


NOBODY: Final = Claim("", None)


def claim_of(metadata: Mapping[bytes, bytes]) -> Claim:
    """Return the claim in the headers of a call. Raises GrpcFault if it is malformed."""
    header = metadata.get(b"authorization", b"").decode("latin-1")
    if not header:
        return NOBODY
    scheme, _, rest = header.partition(" ")
    if scheme != _SCHEME or len(header) > _LONGEST:
        raise GrpcFault(GrpcStatus.UNAUTHENTICATED, f"the header authorization must begin with {_SCHEME}")
    parts = {
        name.strip().lower(): value.strip() for name, _, value in (part.partition("=") for part in rest.split(","))
    }
    access_key = parts.get("credential", "").partition("/")[0]
    if not access_key:
        return NOBODY
    signed = parts.get("signedheaders", "x-mq-date-time").lower().split(";")
    if signed != ["x-mq-date-time"]:
        raise GrpcFault(GrpcStatus.UNAUTHENTICATED, "only the header x-mq-date-time can be signed")
    return Claim(access_key, SignedProof(metadata.get(b"x-mq-date-time", b""), parts.get("signature", "").lower()))
