"""Connections, channels and consumers on the console, and one connection with all that belongs to it."""

from __future__ import annotations

from escrowmq.wire.amqp091 import spec
from tests.unit.admin.processes import FakeConnection
from tests.unit.console.sites import Browser, notices
from tests.unit.wire.amqp091.clients import pair

EVIL = "<b>evil"


def browser(user: str = "guest") -> tuple[Browser, FakeConnection]:
    """Return a browser at a broker with a connection of two channels, and a consumer."""
    server, client = pair()
    client.declare(1, EVIL)
    client.send(1, spec.BasicConsume(EVIL, EVIL, no_wait=True))
    found = Browser(server, user)
    connection = FakeConnection(str(client.port.endpoint.describe()["peer"]))
    found.broker.process.connections[connection] = None
    return found, connection


def test_channels_and_consumers_are_listed_and_lead_to_their_connection() -> None:
    site, connection = browser()
    path = f'href="/console/connections/{connection.address.replace(":", "%3A")}"'
    assert path in site.text("/console/connections")
    channels = site.text("/console/connections?list=channels")
    assert f"{connection.address} (2)</a>" in channels
    assert path in channels
    consumers = site.text("/console/connections?list=consumers")
    assert path in consumers
    assert EVIL not in consumers
    assert "There is no channel" in site.text("/console/connections?list=channels&name=none")


def test_a_connection_is_shown_and_closed() -> None:
    site, connection = browser()
    page = f"/console/connections/{connection.address.replace(':', '%3A')}"
    assert f"Connection from {connection.address}" in site.text(page)
    assert EVIL not in site.text(page)
    done = site.fill(page, "connection-close", reason="maintenance")
    assert notices(done) == [("done", f"The connection from {connection.address} was closed.")]
    assert connection.reasons == ["maintenance"]


def test_an_unknown_connection_is_not_found_and_a_monitor_closes_none() -> None:
    site, connection = browser("m")
    assert site.open("/console/connections/10.0.0.9%3A1").status == 404
    assert "connection-close" not in site.text(f"/console/connections/{connection.address.replace(':', '%3A')}")
