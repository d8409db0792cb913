"""Logging in, as all protocols do."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from escrowmq.core.access.grant import Grant
from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.endpoint import Endpoint, Peer, Verdict
from escrowmq.wire.login import Login, LoginFault
from escrowmq.wire.sasl import TOKEN, Credentials
from escrowmq.wire.scram.client import ClientExchange
from tests.unit.wire.amqp091.clients import Server

PEER = Peer("h", 1)


class Desk(Server):
    """A server that gives its verdicts later."""

    mechanisms = ("PLAIN", "EXTERNAL", "SCRAM-SHA-256")

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Credentials, Callable[[Verdict], None]]] = []
        self.judged: list[tuple[str, Verdict]] = []

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        self.asked.append((credentials, done))

    def login_judged(self, endpoint: Endpoint, who: str, verdict: Verdict) -> None:
        del endpoint
        self.judged.append((who, verdict))

    def renew(self, endpoint: Endpoint, token: str, done: Callable[[Verdict], None]) -> None:
        self.asked.append((Credentials(TOKEN, "", token), done))

    def password_changed(self, endpoint: Endpoint, secret: bytes) -> None:
        self.secrets.append(("", secret))


def unchallenged(data: bytes) -> None:
    raise AssertionError(f"challenge {data!r} of a mechanism with one step")


def login(desk: Desk, peer: Peer = PEER) -> Login:
    return Login(desk, cast("Endpoint", object()), peer)


def test_a_login_that_cannot_be_tried_is_logged() -> None:
    desk = Desk()
    with pytest.raises(LoginFault):
        login(desk).authenticate("PLAIN", b"\0alice\0\xff", lambda _: None, unchallenged)
    assert desk.judged == [("a client", Verdict(None, "PLAIN: the user name or the password is not valid UTF-8"))]


def test_external_is_offered_only_with_a_certificate() -> None:
    assert login(Desk()).mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert login(Desk(), Peer("h", 1, tls=True, certificate_user="alice")).mechanisms == (
        "PLAIN",
        "EXTERNAL",
        "SCRAM-SHA-256",
    )


@pytest.mark.parametrize(
    ("mechanism", "response", "fault"),
    [
        ("EXTERNAL", b"", "unknown mechanism 'EXTERNAL'; offered are PLAIN, SCRAM-SHA-256"),
        ("PLAIN", b"hunter2", "PLAIN: expected authzid, authcid and password with NUL between them"),
    ],
)
def test_an_invalid_login_is_an_error(mechanism: str, response: bytes, fault: str) -> None:
    desk = Desk()
    with pytest.raises(LoginFault) as caught:
        login(desk).authenticate(mechanism, response, lambda _: None, unchallenged)
    assert str(caught.value) == fault
    assert desk.asked == []


def test_the_user_is_known_once_the_server_has_accepted_the_login() -> None:
    desk = Desk()
    mine, told = login(desk), list[bool]()
    mine.authenticate("PLAIN", b"\0guest\0guest", told.append, unchallenged)
    (credentials, done) = desk.asked[0]
    assert (credentials.authcid, mine.user, told) == ("guest", "", [])
    done(Verdict("guest"))
    assert (mine.user, told) == ("guest", [True])


def test_a_refused_login_leaves_no_user() -> None:
    desk = Desk()
    mine, told = login(desk), list[bool]()
    mine.authenticate("PLAIN", b"\0guest\0wrong", told.append, unchallenged)
    desk.asked[0][1](Verdict(None, "wrong"))
    assert (mine.user, told) == ("", [False])


@pytest.mark.parametrize("at_once", [True, False])
def test_scram_goes_by_challenges(at_once: bool) -> None:
    desk = Desk()
    mine, told, challenges = login(desk), list[bool](), list[bytes]()
    client = ClientExchange("SCRAM-SHA-256", "guest", "guest", "abc")
    if at_once:
        mine.authenticate("SCRAM-SHA-256", client.first(), told.append, challenges.append)
    else:
        mine.authenticate("SCRAM-SHA-256", b"", told.append, challenges.append)
        assert challenges.pop() == b""
        mine.respond(client.first())
    mine.respond(client.final(challenges.pop()))
    (credentials, done) = desk.asked[0]
    assert credentials.proof is not None
    assert credentials.proof.fits()
    assert (credentials.mechanism, credentials.authcid, told) == ("SCRAM-SHA-256", "guest", [])
    done(Verdict("guest"))
    client.verify(mine.final)
    assert (mine.user, told) == ("guest", [True])


def test_a_refused_proof_gets_no_signature() -> None:
    desk = Desk()
    mine, challenges = login(desk), list[bytes]()
    client = ClientExchange("SCRAM-SHA-256", "guest", "wrong", "abc")
    mine.authenticate("SCRAM-SHA-256", client.first(), lambda _: None, challenges.append)
    mine.respond(client.final(challenges.pop()))
    assert desk.asked[0][0].proof is not None
    assert not desk.asked[0][0].proof.fits()
    desk.asked[0][1](Verdict(None, "wrong"))
    assert mine.final == b""


def test_malformed_responses_to_challenges_are_errors() -> None:
    mine = login(Desk())
    with pytest.raises(LoginFault, match="a response without a challenge"):
        mine.respond(b"")
    with pytest.raises(LoginFault, match="SCRAM: the GS2 header is malformed"):
        mine.authenticate("SCRAM-SHA-256", b"x", lambda _: None, unchallenged)
    with pytest.raises(LoginFault, match="SCRAM: unexpected message"):
        mine.respond(b"n,,n=user,r=x")


def test_a_user_enters_a_virtual_host_and_is_admitted() -> None:
    desk = Desk()
    mine = login(desk)
    mine.authenticate("PLAIN", b"\0guest\0guest", lambda _: None, unchallenged)
    desk.asked[0][1](Verdict("guest"))
    assert mine.vhost_name == ""
    assert mine.enter("/") is desk.broker.directory.vhosts["/"]
    assert desk.admissions == []
    mine.admit()
    assert desk.admissions == [("guest", "/")]


@pytest.mark.parametrize("name", ["/", "elsewhere"])
def test_a_virtual_host_is_closed_to_users_without_permissions_in_it(name: str) -> None:
    mine = login(Desk())
    with pytest.raises(BrokerError, match=r"refused for user ''|not found"):
        mine.enter(name)
    assert mine.vhost_name == ""


def test_a_limit_on_connections_excludes_a_permitted_user() -> None:
    class Full(Desk):
        def check_room(self, endpoint: Endpoint, user: str, vhost: str) -> None:
            raise BrokerError(Condition.NOT_ALLOWED, f"no room for {user} in {vhost}")

    desk = Full()
    mine = login(desk)
    mine.authenticate("PLAIN", b"\0guest\0guest", lambda _: None, unchallenged)
    desk.asked[0][1](Verdict("guest"))
    with pytest.raises(BrokerError, match="no room for guest in /"):
        mine.enter("/")
    assert mine.vhost_name == ""


def with_token(desk: Desk, *scopes: str) -> Login:
    mine = login(desk)
    mine.authenticate("PLAIN", b"\0\0a token", lambda _: None, unchallenged)
    desk.asked.pop()[1](granted("alice", *scopes))
    return mine


def granted(user: str, *scopes: str) -> Verdict:
    return Verdict(user, grant=Grant(user, scopes))


@pytest.mark.rule("SEC-1")
def test_the_rights_of_a_token_are_those_of_its_scopes() -> None:
    desk = Desk()
    mine = with_token(desk, "read:%2F/mine")
    mine.enter("/")
    door = mine.door()
    assert (mine.user, door.user) == ("alice", "alice")
    assert door.allows(Operation.CONSUME, queue="mine")
    assert not door.allows(Operation.CONSUME, queue="other")
    with pytest.raises(BrokerError, match="access to vhost '/' refused for user 'alice'"):
        with_token(Desk(), "read:elsewhere/*").enter("/")
    with pytest.raises(BrokerError):
        with_token(Desk(), "read:*/*").enter("missing")


@pytest.mark.rule("SEC-1")
def test_a_token_of_a_listed_name_has_only_its_own_rights() -> None:
    mine = login(Desk())
    mine.authenticate("PLAIN", b"\0\0a token", lambda _: None, unchallenged)
    desk = cast("Desk", mine._host)
    desk.asked.pop()[1](granted("guest"))
    with pytest.raises(BrokerError, match="access to vhost '/' refused for user 'guest'"):
        mine.enter("/")


def test_a_new_token_replaces_the_rights_of_the_former_one() -> None:
    desk, told = Desk(), list[str]()
    mine = with_token(desk, "read:*/mine")
    mine.enter("/")
    door = mine.door()
    mine.renew(b"a new token", told.append)
    (credentials, done) = desk.asked.pop()
    assert (credentials.password, told) == ("a new token", [])
    assert door.allows(Operation.CONSUME, queue="mine"), "until the new one is checked"
    done(granted("alice", "read:*/other"))
    assert told == [""]
    assert not door.allows(Operation.CONSUME, queue="mine")
    assert door.allows(Operation.CONSUME, queue="other")


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (Verdict(None, "expired"), "the new token was refused; the broker's log has the reason"),
        (Verdict("alice"), "the new token was refused; the broker's log has the reason"),
        (granted("eve", "read:*/*"), "the new token is another user's"),
    ],
)
def test_a_new_token_that_is_refused_leaves_the_former_one(verdict: Verdict, why: str) -> None:
    desk, told = Desk(), list[str]()
    mine = with_token(desk, "read:*/mine")
    mine.enter("/")
    door = mine.door()
    mine.renew(b"a new token", told.append)
    desk.asked.pop()[1](verdict)
    assert (told, mine.user) == ([why], "alice")
    assert door.allows(Operation.CONSUME, queue="mine")
    assert not door.allows(Operation.CONSUME, queue="other")


def test_new_tokens_are_checked_one_after_the_other() -> None:
    desk, told = Desk(), list[str]()
    mine = with_token(desk, "read:*/*")
    mine.renew(b"first", told.append)
    mine.renew(b"second", told.append)
    assert told == ["the former new token is not checked yet"]
    desk.asked.pop()[1](granted("alice"))
    mine.renew(b"\xff", told.append)
    assert desk.asked.pop()[0].password == "\ufffd"
    assert told[1:] == [""]


def test_a_new_secret_of_a_client_with_a_password_changes_nothing() -> None:
    desk, told = Desk(), list[str]()
    mine = login(desk)
    mine.authenticate("PLAIN", b"\0guest\0guest", lambda _: None, unchallenged)
    desk.asked.pop()[1](Verdict("guest"))
    mine.renew(b"new", told.append)
    assert (told, desk.secrets, desk.asked) == ([""], [("", b"new")], [])
