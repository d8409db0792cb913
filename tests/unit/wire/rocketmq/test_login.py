"""A connection belongs to the user that its first request has shown, or to the one for clients without a key."""

from __future__ import annotations

from typing import Any, cast

import pytest

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.endpoint import Peer
from escrowmq.wire.rocketmq.login import RocketmqLogin
from escrowmq.wire.rocketmq.options import RocketmqOptions
from tests.unit.wire.amqp091.clients import Server, server

ENDPOINT = cast("Any", object())


def login(made: Server, *, loopback: bool = True) -> RocketmqLogin:
    return RocketmqLogin(made, ENDPOINT, Peer("host", 1, loopback=loopback), "rocketmq-grpc")


def test_a_client_without_a_key_is_the_user_of_the_configuration() -> None:
    made = server()
    found = login(made)
    assert found.vhost_name == ""
    found.enter_anonymously()
    found.enter_anonymously()
    assert (found.user, found.vhost_name, found.door.user) == ("guest", "/", "guest")
    assert made.admissions == [("guest", "/")]


@pytest.mark.rule("SEC-2")
def test_a_connection_belongs_to_one_user() -> None:
    found = login(server(users=("guest", "other")))
    found.enter("other")
    with pytest.raises(BrokerError):
        found.enter_anonymously()
    assert found.user == "other"


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(
    "options",
    [RocketmqOptions(anonymous_user=""), RocketmqOptions(anonymous_user="x"), RocketmqOptions(vhost="x")],
)
def test_a_refused_login_changes_nothing(options: RocketmqOptions) -> None:
    made = server(rocketmq=options)
    found = login(made)
    with pytest.raises(BrokerError):
        found.enter_anonymously()
    assert found.user == ""
    assert made.admissions == []


def test_guest_connects_from_this_machine_only() -> None:
    with pytest.raises(BrokerError):
        login(server(), loopback=False).enter_anonymously()
    login(server(rocketmq=RocketmqOptions(guest_loopback_only=False)), loopback=False).enter_anonymously()
