"""Signatures of both generations."""

from __future__ import annotations

import base64
import hashlib
import hmac

from escrowmq.wire.rocketmq.signature import SignedProof, hex_signature, remoting_proof


def signed(text: bytes) -> str:
    return base64.b64encode(hmac.new(b"secret", text, hashlib.sha1).digest()).decode()


def test_a_proof_fits_the_secret_that_made_it() -> None:
    proof = SignedProof(b"20261123T050000Z", hex_signature(b"secret", b"20261123T050000Z"))
    assert proof.fits(b"secret")
    assert not proof.fits(b"Secret")
    assert not SignedProof(b"x", "größer").fits(b"secret")


def test_remoting_signs_all_values_in_the_order_of_their_names_and_the_body() -> None:
    fields = {"b": "2", "AccessKey": "key", "a": "1", "Signature": signed(b"key12body")}
    assert remoting_proof(fields, b"body", 479).fits(b"secret")
    assert not remoting_proof(fields, b"other", 479).fits(b"secret")


def test_old_clients_leave_the_query_by_unique_key_out() -> None:
    fields = {"AccessKey": "key", "_UNIQUE_KEY_QUERY": "true"}
    assert remoting_proof({**fields, "Signature": signed(b"key")}, b"", 393).fits(b"secret")
    assert remoting_proof({**fields, "Signature": signed(b"keytrue")}, b"", 394).fits(b"secret")


def test_a_signature_that_is_no_base64_fits_nothing() -> None:
    assert not remoting_proof({"Signature": "*"}, b"", 479).fits(b"secret")
    assert not remoting_proof({}, b"", 479).fits(b"secret")
