"""Logging in, as all protocols do."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.endpoint import Endpoint, Peer, Verdict
from escrowmq.wire.login import Login, LoginFault
from escrowmq.wire.sasl import Credentials
from tests.unit.wire.amqp091.clients import Server

PEER = Peer("h", 1)


class Desk(Server):
    """A server that gives its verdicts later."""

    mechanisms = ("PLAIN", "EXTERNAL")

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Credentials, Callable[[Verdict], None]]] = []

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        self.asked.append((credentials, done))


def login(desk: Desk, peer: Peer = PEER) -> Login:
    return Login(desk, cast("Endpoint", object()), peer)


def test_external_is_offered_only_with_a_certificate() -> None:
    assert login(Desk()).mechanisms == ("PLAIN",)
    assert login(Desk(), Peer("h", 1, tls=True, certificate_user="alice")).mechanisms == ("PLAIN", "EXTERNAL")


@pytest.mark.parametrize(
    ("mechanism", "response", "fault"),
    [
        ("EXTERNAL", b"", "unknown mechanism 'EXTERNAL'; offered are PLAIN"),
        ("PLAIN", b"hunter2", "PLAIN: expected authzid, authcid and password with NUL between them"),
    ],
)
def test_an_invalid_login_is_an_error(mechanism: str, response: bytes, fault: str) -> None:
    desk = Desk()
    with pytest.raises(LoginFault) as caught:
        login(desk).authenticate(mechanism, response, lambda _: None)
    assert str(caught.value) == fault
    assert desk.asked == []


def test_the_user_is_known_once_the_server_has_accepted_the_login() -> None:
    desk = Desk()
    mine, told = login(desk), list[bool]()
    mine.authenticate("PLAIN", b"\0guest\0guest", told.append)
    (credentials, done) = desk.asked[0]
    assert (credentials.authcid, mine.user, told) == ("guest", "", [])
    done(Verdict("guest"))
    assert (mine.user, told) == ("guest", [True])


def test_a_refused_login_leaves_no_user() -> None:
    desk = Desk()
    mine, told = login(desk), list[bool]()
    mine.authenticate("PLAIN", b"\0guest\0wrong", told.append)
    desk.asked[0][1](Verdict(None, "wrong"))
    assert (mine.user, told) == ("", [False])


def test_a_user_enters_a_virtual_host_and_is_admitted() -> None:
    desk = Desk()
    mine = login(desk)
    mine.authenticate("PLAIN", b"\0guest\0guest", lambda _: None)
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
    mine.authenticate("PLAIN", b"\0guest\0guest", lambda _: None)
    desk.asked[0][1](Verdict("guest"))
    with pytest.raises(BrokerError, match="no room for guest in /"):
        mine.enter("/")
    assert mine.vhost_name == ""
