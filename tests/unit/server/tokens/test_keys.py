"""Key sets: which keys are read, and which are left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.server.tokens.keys import MOST, KeysFault, parsed
from tests.tokens import jwk, key_of, key_set


def algorithms(entry: dict[str, Any]) -> set[str]:
    (found,) = parsed(json.dumps({"keys": [entry]}).encode())
    return set(found.algorithms)


def test_each_type_of_key_has_its_algorithms() -> None:
    rsa = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
    assert algorithms(jwk("one")) == rsa
    assert algorithms(jwk("one", alg="PS256", use="sig", key_ops=["verify"])) == {"PS256"}
    assert algorithms(jwk("curve", "ES256")) == {"ES256"}
    assert algorithms(jwk("edwards", "Ed25519")) == {"EdDSA", "Ed25519"}


def test_a_key_may_have_no_id() -> None:
    entry = jwk("one")
    del entry["kid"]
    assert parsed(json.dumps({"keys": [entry]}).encode())[0].id is None


def test_the_secret_part_of_a_key_is_not_kept() -> None:
    entry = {**key_of("one").as_dict(private=True), "kid": "one"}
    (found,) = parsed(json.dumps({"keys": [entry]}).encode())
    assert not found.key.is_private


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "s"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "e": "AQAB"},
        {"kty": "RSA", "n": "x" * 20_000, "e": "AQAB"},
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "X25519", "x": "AA"},
        {},
    ],
)
def test_keys_that_cannot_check_signatures_are_left_out(entry: dict[str, Any]) -> None:
    assert [each.id for each in parsed(json.dumps({"keys": [entry, jwk("one"), 5]}).encode())] == ["one"]
    with pytest.raises(KeysFault, match="none of its 1 keys can check signatures"):
        parsed(json.dumps({"keys": [entry]}).encode())


@pytest.mark.parametrize(
    "change", [{"use": "enc"}, {"key_ops": ["sign"]}, {"alg": "HS256"}, {"key_ops": 5}, {"kid": 5}]
)
def test_keys_for_another_use_are_left_out(change: dict[str, Any]) -> None:
    with pytest.raises(KeysFault):
        parsed(json.dumps({"keys": [jwk("one", **change)]}).encode())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it is not a key set"),
        (b'{"keys": {}}', "it is not a key set"),
        (b"-----BEGIN PUBLIC KEY-----", "it is in PEM"),
        (json.dumps({"keys": [{}] * (MOST + 1)}).encode(), f"it has more than {MOST} keys"),
    ],
)
def test_what_is_no_key_set_is_told(data: bytes, why: str) -> None:
    with pytest.raises(KeysFault, match=why):
        parsed(data)


def test_a_key_set_has_its_keys_in_order() -> None:
    assert [each.id for each in parsed(key_set("two", "one"))] == ["two", "one"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kty", "crv", "n", "e", "x", "y", "kid", "use", "key_ops", "alg"]), inner)
    ),
    max_leaves=8,
)


@given(st.lists(_JSON, max_size=3))
def test_any_json_is_a_key_set_or_refused(keys: list[Any]) -> None:
    try:
        parsed(json.dumps({"keys": keys}).encode())
    except KeysFault:
        return
