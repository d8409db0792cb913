"""Channels over HTTP: RabbitMQ's fields, and who sees which."""

from __future__ import annotations

import pytest

from escrowmq.admin.http.channels import CHANNEL_ROUTES
from tests.unit.admin.http.sites import HttpSite
from tests.unit.admin.http.test_management import worked
from tests.unit.admin.processes import FakeConnection

NAME = "10.0.0.1%3A99%20%281%29"
NAMES = {"vhost": "%2F", "name": "10.0.0.1%3A99"}


def busy() -> HttpSite:
    """Return a site with a connection of `guest`, and one of the user `u` in another virtual host."""
    site = worked()
    site.broker.process.connections[FakeConnection("10.0.0.2:7", user="u", vhost="other", channels=1)] = None
    return site


def test_a_channel_has_the_fields_of_rabbitmq() -> None:
    found, *_ = busy().get("/api/channels").json
    assert found == {
        "name": "10.0.0.1:99 (1)",
        "number": 1,
        "connection_details": {"name": "10.0.0.1:99", "peer_host": "10.0.0.1", "peer_port": 99},
        "user": "guest",
        "user_who_performed_action": "guest",
        "vhost": "/",
        "state": "running",
        "confirm": True,
        "transactional": False,
        "consumer_count": 1,
        "prefetch_count": 10,
        "global_prefetch_count": 0,
        "messages_unacknowledged": 1,
        "messages_uncommitted": 0,
        "node": "escrowmq@h",
    }


def test_channels_are_found_by_name_connection_and_virtual_host() -> None:
    site = busy()
    assert site.get(f"/api/channels/{NAME}").json["consumer_details"] == []
    assert len(site.get("/api/connections/10.0.0.1%3A99/channels").json) == 2
    assert [each["user"] for each in site.get("/api/vhosts/other/channels").json] == ["u"]
    assert site.get("/api/channels?page=1&page_size=1&name=10.0.0.1").json["filtered_count"] == 2
    for path in (
        "channels/10.0.0.1%3A99%20%289%29",
        "channels/none",
        "connections/none/channels",
        "vhosts/no/channels",
    ):
        assert site.get("/api/" + path).status == 404


def test_users_see_their_own_channels_and_monitors_see_all() -> None:
    site = busy()
    assert len(site.get("/api/channels", "m").json) == 3
    assert [each["user"] for each in site.get("/api/channels", "u").json] == ["u"]
    assert site.get(f"/api/channels/{NAME}", "u").status == 404
    assert site.get("/api/connections/10.0.0.1%3A99/channels", "u").status == 404
    assert site.get("/api/vhosts/%2F/channels", "u").status == 401


@pytest.mark.parametrize("path", CHANNEL_ROUTES)
@pytest.mark.parametrize("user", [None, "none"])
def test_no_path_answers_without_a_login_and_a_tag(path: str, user: str | None) -> None:
    assert busy().get("/api/" + path.format(**NAMES), user).status == 401


def test_a_consumer_names_its_channel() -> None:
    (consumer,) = worked().get("/api/consumers").json
    details = consumer["channel_details"]
    assert details["name"] == f"{details['connection_name']} (1)"
    assert details["number"] == 1
