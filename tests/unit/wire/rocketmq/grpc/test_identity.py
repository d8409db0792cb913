"""The claim in the header `authorization`."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.grpc.identity import NOBODY, claim_of
from escrowmq.wire.rocketmq.grpc.status import GrpcFault
from escrowmq.wire.rocketmq.signature import hex_signature

DATE = b"20261123T050000Z"


def header(credential: str, signature: str, signed: str = "x-mq-date-time") -> dict[bytes, bytes]:
    text = f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders={signed}, Signature={signature}"
    return {b"authorization": text.encode(), b"x-mq-date-time": DATE}


@pytest.mark.parametrize("credential", ["key", "key/region/service"])
@pytest.mark.parametrize("upper", [False, True])
def test_a_claim_has_the_key_and_a_signature_in_either_case(credential: str, upper: bool) -> None:
    signature = hex_signature(b"secret", DATE)
    claim = claim_of(header(credential, signature.upper() if upper else signature))
    assert claim.access_key == "key"
    assert claim.proof is not None
    assert claim.proof.fits(b"secret")
    assert not claim.proof.fits(b"other")


@pytest.mark.parametrize("metadata", [{}, header("", "abc")])
def test_no_key_is_nobody(metadata: dict[bytes, bytes]) -> None:
    assert claim_of(metadata) == NOBODY


@pytest.mark.parametrize(
    "metadata",
    [{b"authorization": b"Basic abc"}, header("key", "x", "x-mq-date-time;host"), header("k" * 2000, "x")],
)
def test_other_schemes_are_refused(metadata: dict[bytes, bytes]) -> None:
    with pytest.raises(GrpcFault):
        claim_of(metadata)
