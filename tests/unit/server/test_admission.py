"""Bounds on connections before and after their login, and for each address."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from escrowmq.config.limits import LimitsSection
from escrowmq.core.access.access import Access
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.server.admission import Admission, network_of
from escrowmq.server.connection import ClientConnection
from escrowmq.wire.endpoint import Peer


class Door:
    """An admission, and the connections that it has let in."""

    def __init__(self, **limits: int) -> None:
        self.admission = Admission(LimitsSection(**cast("Any", limits)))
        self.access = Access()
        self.access.add_user("alice", "")
        self.access.add_user("bob", "")
        self.access.add_vhost("/")
        self.access.add_vhost("v")

    def arrive(self, host: str = "10.0.0.1") -> tuple[ClientConnection, ClientConnection | None]:
        """Add a connection, for which the second one is closed."""
        connection = cast("ClientConnection", _Stub(host))
        closed = self.admission.arrive(connection)
        if closed is None:
            return connection, None
        self.admission.evict(closed[0])
        return connection, closed[0]

    def log_in(self, connection: ClientConnection, user: str = "alice", vhost: str = "/") -> None:
        self.admission.check(self.access, user, vhost)
        connection.user, connection.vhost = user, vhost
        connection.admitted = True
        self.admission.log_in(connection)


class _Stub(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, host: str) -> None:
        super().__init__(peer=Peer(host, 1), admitted=False, user="", vhost="")

    def __eq__(self, other: object) -> bool:
        return self is other


@pytest.mark.rule("FAIR-3", "SEC-4")
def test_the_oldest_that_has_not_logged_in_makes_room_for_the_newest() -> None:
    door = Door(unauthenticated_connections=3)
    user, _ = door.arrive()
    door.log_in(user)
    first, *_ = [door.arrive(f"10.0.0.{i}")[0] for i in range(3)]
    _, closed = door.arrive("10.0.1.1")
    assert closed is first, "and not the user, who has come before"
    assert door.admission.strangers == 3


@pytest.mark.rule("FAIR-3", "SEC-4")
def test_sockets_that_never_log_in_exclude_no_client() -> None:
    door = Door(connections=10, unauthenticated_connections=100, unauthenticated_connections_per_address=20)
    flood = [door.arrive(f"10.0.{i % 50}.1")[0] for i in range(10_050)]
    assert door.admission.strangers == 100
    for i in range(10):
        user, _ = door.arrive(f"192.168.0.{i}")
        for j in range(5):
            assert door.arrive(f"10.0.{j}.1")[1] in flood
        door.log_in(user)
    assert door.admission.logged_in == 10


@pytest.mark.rule("FAIR-3", "SEC-4")
def test_one_address_has_a_bound_of_its_own() -> None:
    door = Door(unauthenticated_connections=100, unauthenticated_connections_per_address=2)
    stranger, _ = door.arrive("10.9.9.9")
    first, second = (door.arrive()[0] for _ in range(2))
    assert door.arrive()[1] is first
    assert door.arrive()[1] is second
    door.log_in(stranger)


def test_logins_over_the_limit_are_refused_until_a_client_leaves() -> None:
    door = Door(connections=1)
    first, second = door.arrive()[0], door.arrive()[0]
    door.log_in(first)
    with pytest.raises(
        BrokerError, match=r"refused for user 'alice': node connection limit \(1\) is reached"
    ) as raised:
        door.log_in(second)
    assert raised.value.condition is Condition.NOT_ALLOWED
    door.admission.leave(first)
    door.log_in(second)


@pytest.mark.rule("FAIR-3")
def test_a_user_and_a_virtual_host_have_limits_of_their_own() -> None:
    door = Door()
    door.access.set_user_limits("alice", 1, None)
    door.access.set_vhost_limits("v", 1, None)
    first, second, third, fourth = (door.arrive()[0] for _ in range(4))
    door.log_in(first)
    with pytest.raises(BrokerError, match=r"for user 'alice': user connection limit \(1\) is reached") as raised:
        door.log_in(second)
    assert raised.value.condition is Condition.NOT_ALLOWED
    door.log_in(second, "bob", "v")
    with pytest.raises(BrokerError, match=r"access to vhost 'v' refused for user 'bob': connection limit \(1\)"):
        door.log_in(third, "bob", "v")
    door.log_in(third, "bob")
    door.admission.leave(first)
    door.log_in(fourth)


def test_the_connections_of_an_address_can_be_limited() -> None:
    door = Door(connections_per_address=2)
    first, _ = door.arrive()
    door.log_in(first)
    door.arrive()
    third, closed = door.arrive()
    assert closed is third
    assert door.arrive("10.0.0.2")[1] is None
    for connection in (first, third):
        door.admission.leave(connection)
    assert door.arrive()[1] is None


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?:", "?:"),
    ],
)
def test_an_address_of_ipv6_is_its_prefix(host: str, network: str) -> None:
    assert network_of(host) == network
