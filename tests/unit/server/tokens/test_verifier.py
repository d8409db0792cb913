"""One token: what is accepted, and every reason for a refusal."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import RSAKey

from escrowmq.server.tokens.keys import parsed
from escrowmq.server.tokens.verifier import (
    LONGEST,
    MOST_SCOPES,
    TokenRefused,
    TokenRules,
    UnknownKey,
    is_token,
    verified,
)
from tests.tokens import AUDIENCE, ISSUER, claims, jwk, key_of, key_set, part, token

RULES = TokenRules(ISSUER, AUDIENCE, "broker.", frozenset(("RS256", "ES256", "EdDSA", "Ed25519")), "sub", "scope", 5.0)
KEYS = parsed(key_set("one"))


def refusal(text: str, **more: Any) -> str:
    with pytest.raises(TokenRefused) as caught:
        verified(text, more.get("keys", KEYS), more.get("rules", RULES), more.get("now", time.time()))
    return str(caught.value)


def test_a_token_grants_user_scopes_and_tags_until_it_expires() -> None:
    expires = int(time.time()) + 60
    given = token(scope="broker.read:%2F/q broker.tag:monitoring openid other.write:*/*", exp=expires)
    grant = verified(given, KEYS, RULES, time.time())
    assert (grant.user, grant.scopes, grant.tags) == ("alice", ("read:%2F/q", "tag:monitoring"), ("monitoring",))
    assert grant.expires_ms == (expires + 5) * 1000


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA", "Ed25519"])
def test_each_algorithm_checks_signatures(algorithm: str) -> None:
    keys = parsed(json.dumps({"keys": [jwk(algorithm, algorithm)]}).encode())
    given = token(algorithm, algorithm)
    assert verified(given, keys, RULES, time.time()).user == "alice"
    head, _, signature = given.split(".")
    assert refusal(f"{head}.{part(claims(sub='eve'))}.{signature}", keys=keys) == "the token's signature is wrong"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://other.example.com"}, "the token is of another issuer"),
        ({"iss": None}, "the token is of another issuer"),
        ({"iss": [ISSUER]}, "the token is of another issuer"),
        ({"aud": "other"}, "the token is for another audience"),
        ({"aud": None}, "the token is for another audience"),
        ({"aud": ["other", 5]}, "the token is for another audience"),
        ({"aud": {"broker": 1}}, "the token is for another audience"),
        ({"exp": None}, "the token has no expiry, `exp`"),
        ({"exp": "soon"}, "the token's claim `exp` is not a time"),
        ({"exp": True}, "the token's claim `exp` is not a time"),
        ({"exp": float("nan")}, "the token's claim `exp` is not a time"),
        ({"exp": float("inf")}, "the token's claim `exp` is not a time"),
        ({"exp": 10**30}, "the token's claim `exp` is not a time"),
        ({"exp": 1}, "the token has expired"),
        ({"nbf": 2**40}, "the token is not valid yet"),
        ({"nbf": "now"}, "the token's claim `nbf` is not a time"),
        ({"sub": None}, "the token's claim `sub` is not a user name of 1 to 255 printable bytes"),
        ({"sub": ""}, "the token's claim `sub` is not a user name of 1 to 255 printable bytes"),
        ({"sub": "a\nb"}, "the token's claim `sub` is not a user name of 1 to 255 printable bytes"),
        ({"sub": "\ud800"}, "the token's claim `sub` is not a user name of 1 to 255 printable bytes"),
        ({"sub": "é" * 128}, "the token's claim `sub` is not a user name of 1 to 255 printable bytes"),
        ({"sub": 5}, "the token's claim `sub` is not a user name of 1 to 255 printable bytes"),
        ({"scope": 5}, "the token's claim `scope` is neither a text nor a list of texts"),
        ({"scope": ["a", 5]}, "the token's claim `scope` is neither a text nor a list of texts"),
    ],
)
def test_a_claim_that_is_wrong_is_named(changes: dict[str, Any], why: str) -> None:
    assert refusal(token(**changes)) == why


def test_clocks_may_differ_by_the_leeway() -> None:
    given = token(exp=1000, nbf=900)
    for now in (895, 1004):
        assert verified(given, KEYS, RULES, now).user == "alice"
    assert refusal(given, now=894) == "the token is not valid yet"
    assert refusal(given, now=1005) == "the token has expired"


def test_one_of_several_audiences_is_enough() -> None:
    assert verified(token(aud=["other", AUDIENCE]), KEYS, RULES, time.time()).user == "alice"


def test_scopes_may_be_a_list_and_may_be_missing() -> None:
    assert verified(token(scope=["broker.read:*/*", "x"]), KEYS, RULES, time.time()).scopes == ("read:*/*",)
    assert verified(token(scope=None), KEYS, RULES, time.time()).scopes == ()


def test_the_number_of_scopes_is_limited() -> None:
    rules = TokenRules(ISSUER, AUDIENCE, "", RULES.algorithms, "sub", "scope", 0)
    scopes = ["a"] * (MOST_SCOPES + 1)
    assert refusal(token(scope=scopes), rules=rules) == f"the token has more than {MOST_SCOPES} scopes for this broker"


def test_the_signature_of_another_key_is_wrong() -> None:
    assert refusal(token("two", header={"kid": "one"})) == "the token's signature is wrong"


def test_an_unknown_key_may_be_a_new_one() -> None:
    with pytest.raises(UnknownKey):
        verified(token("two"), KEYS, RULES, time.time())


def test_a_token_without_a_key_id_is_checked_by_all_keys() -> None:
    keys = parsed(key_set("two", "one"))
    assert verified(token("one", header={"kid": None}), keys, RULES, time.time()).user == "alice"
    with pytest.raises(UnknownKey):
        verified(token("one", header={"kid": None}), (), RULES, time.time())


class TestConfusedAlgorithms:
    def test_none_is_refused(self) -> None:
        for name in ("none", "None", "NONE"):
            given = f"{part({'alg': name, 'kid': 'one'})}.{part(claims())}."
            assert refusal(given) == "the token's algorithm is not one of `tokens.algorithms`"
        given = f"{part({'alg': 'RS256', 'kid': 'one'})}.{part(claims())}."
        assert refusal(given) == "the token is malformed"

    @pytest.mark.parametrize("secret", [b"", b"x", "pem", "der", "modulus"])
    @pytest.mark.parametrize("allowed", [RULES.algorithms, RULES.algorithms | {"HS256"}])
    def test_a_public_key_is_no_secret(self, secret: bytes | str, allowed: frozenset[str]) -> None:
        """Even if the algorithm could be allowed."""
        public = key_of("one")
        known = {
            "pem": public.as_pem(private=False),
            "der": public.as_der(private=False),
            "modulus": public.as_dict(private=False)["n"].encode(),
        }
        used = known[secret] if isinstance(secret, str) else secret
        signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims())}"
        signature = hmac.new(used, signed.encode(), hashlib.sha256).digest()
        rules = TokenRules(ISSUER, AUDIENCE, "", allowed, "sub", "scope", 0)
        refusal(f"{signed}.{part(signature)}", rules=rules)

    def test_a_key_serves_only_its_own_algorithm(self) -> None:
        keys = parsed(json.dumps({"keys": [jwk("one", alg="PS256")]}).encode())
        assert refusal(token("one"), keys=keys) == "the token's signature is wrong"
        given = token("one", header={"alg": "ES256"})
        assert refusal(given) == "the token's signature is wrong"

    @pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c"])
    def test_a_key_in_the_token_is_not_used(self, name: str) -> None:
        own = RSAKey.generate_key(2048)
        value = own.as_dict(private=False) if name == "jwk" else "http://127.0.0.1:1/"
        signed = f"{part({'alg': 'RS256', 'kid': 'one', name: value})}.{part(claims())}"
        from joserfc.jws import JWSRegistry

        signature = JWSRegistry.algorithms["RS256"].sign(signed.encode(), own)
        assert refusal(f"{signed}.{part(signature)}") == "the token's signature is wrong"

    def test_an_extension_that_must_be_understood_is_refused(self) -> None:
        given = token("one", header={"crit": ["b64"], "b64": False})
        assert "must be understood" in refusal(given)


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a.b", "a.b.c.d", "a.b.c.d.e", "é.é.é", "a b.c.d", f"{part([])}.{part({})}.AA", "=.=.="],
)
def test_what_is_no_token_is_malformed(text: str) -> None:
    assert refusal(text) == "the token is malformed"


def test_deep_nesting_is_malformed() -> None:
    assert refusal(f"{part(b'[' * 4000)}.{part(b'{}')}.AA") == "the token is malformed"


def test_a_token_has_a_longest_length() -> None:
    assert refusal("a" * (LONGEST + 1)) == f"the token is longer than {LONGEST} characters"


def test_a_password_is_not_taken_for_a_token() -> None:
    assert is_token(token())
    assert is_token(f"{part({'alg': 'none'})}.{part({})}.")
    for password in ("secret", "a.b.c", "my.pass.word", "ey.ey.ey", "eyJ.x.y", "..", "", f"{part({'x': 1})}.a.b"):
        assert not is_token(password)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_as_a_token_is_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        verified(text, KEYS, RULES, 0.0)
    is_token(text)


_HEADERS = st.fixed_dictionaries(
    {"alg": st.sampled_from(["RS256", "ES256", "Ed25519", "none", "HS256"]) | st.integers() | st.none()},
    optional={"kid": st.sampled_from(["one", "two"]) | st.integers() | st.lists(st.integers()) | st.none()},
)


@given(_HEADERS, st.dictionaries(st.text(max_size=5), st.integers()), st.binary(max_size=300))
def test_any_parts_of_a_token_are_refused(header: dict[str, Any], body: dict[str, Any], signature: bytes) -> None:
    with pytest.raises(TokenRefused):
        verified(f"{part(header)}.{part(body)}.{part(signature)}", KEYS, RULES, 0.0)


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_token_with_one_changed_character_is_refused(at: int, change: int) -> None:
    given = token(exp=10_000)
    at %= given.rindex(".")  # the last characters of a signature may have unused bits
    other = chr((ord(given[at]) ^ change) & 0x7F)
    if other != given[at]:
        with pytest.raises(TokenRefused):
            verified(given[:at] + other + given[at + 1 :], KEYS, RULES, 0.0)
