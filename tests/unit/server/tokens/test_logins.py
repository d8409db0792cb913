"""The memory of tokens that were right."""

from __future__ import annotations

from escrowmq.core.access.grant import Grant
from escrowmq.server.tokens.cache import KeyCache
from escrowmq.server.tokens.keys import KeysFault
from escrowmq.server.tokens.logins import TokenLogins
from escrowmq.server.tokens.verifier import TokenRefused, UnknownKey
from tests.tokens import key_set, token
from tests.unit.server.tokens.test_cache import Scene
from tests.unit.server.tokens.test_verifier import RULES


def made(scene: Scene) -> TokenLogins:
    scene.cache.refresh()
    scene.run()
    return TokenLogins(scene.cache, RULES, lambda: scene.now)


def checked(logins: TokenLogins, given: str) -> Grant:
    found = logins.check(given)()
    assert isinstance(found, Grant)
    logins.remember(given, found, logins.version)
    return found


def test_a_token_is_remembered_until_it_expires() -> None:
    scene = Scene()
    logins, given = made(scene), token(exp=1000)
    assert logins.remembered(given) is None
    found = checked(logins, given)
    assert logins.remembered(given) is found
    scene.now = 1004.9
    assert logins.remembered(given) is found
    scene.now = 1005
    assert logins.remembered(given) is None


def test_new_keys_make_the_broker_forget() -> None:
    scene = Scene()
    logins, given = made(scene), token(exp=1000)
    checked(logins, given)
    scene.body = key_set("two")
    logins.reload()
    scene.run()
    assert logins.remembered(given) is None
    assert isinstance(logins.check(given)(), UnknownKey)


def test_a_check_by_keys_that_were_replaced_meanwhile_is_not_remembered() -> None:
    scene = Scene()
    logins, given = made(scene), token(exp=1000)
    work, version = logins.check(given), logins.version
    scene.body = key_set("two")
    logins.reload()
    scene.run()
    found = work()
    assert isinstance(found, Grant)
    logins.remember(given, found, version)
    assert logins.remembered(given) is None


def test_the_number_of_remembered_tokens_is_bounded() -> None:
    logins, grant = made(Scene()), Grant("u", [], 10**15)
    for number in range(1500):
        logins.remember(str(number), grant, logins.version)
    assert logins.remembered("0") is None
    assert logins.remembered("1499") is grant


def test_only_an_unknown_key_is_a_reason_to_read_the_keys() -> None:
    logins = made(Scene())
    assert not logins.await_keys(TokenRefused("x"), lambda: None)
    assert logins.await_keys(UnknownKey("x"), lambda: None)


def test_a_refusal_says_if_the_keys_cannot_be_read() -> None:
    scene = Scene()
    scene.body = KeysFault("it is not JSON")
    logins = made(scene)
    assert logins.reason(UnknownKey("unknown")) == "unknown, and they cannot be read from the source: it is not JSON"
    assert logins.reason(TokenRefused("expired")) == "expired"
    assert logins.figures() == {
        "issuer": RULES.issuer,
        "audience": RULES.audience,
        "keys": 0,
        "keys_from": "the source",
        "fault": "it is not JSON",
    }
    assert isinstance(scene.cache, KeyCache)
    logins.stop()
