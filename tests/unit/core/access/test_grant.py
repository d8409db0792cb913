"""The rights that scopes give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.access.access import Access
from escrowmq.core.access.door import Door
from escrowmq.core.access.grant import Grant, parsed
from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.vhost import VirtualHost


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(
    "scope",
    [
        "",
        "read",
        "read:",
        "read:*",
        "read:/",
        "read:a/b/c/d",
        "READ:*/*",
        "own:*/*",
        "tag:administrator",
        "openid",
        "read:%/*",
        "read:*/%ff",
        " read:*/*",
    ],
)
def test_other_scopes_give_no_right_on_a_queue(scope: str) -> None:
    assert not Grant("u", [scope]).allowed("u", "/", "q", "read")


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(
    ("scope", "vhost", "name", "allowed"),
    [
        ("read:*/*", "/", "q", True),
        ("read:%2F/q", "/", "q", True),
        ("read:%2F/q", "v", "q", False),
        ("read:v-*/orders.*", "v-1", "orders.eu", True),
        ("read:v-*/orders.*", "v-1", "invoices", False),
        ("read:v/a%2Fb", "v", "a/b", True),
        ("read:*/q/key", "/", "q", True),
        ("write:*/*", "/", "q", False),
    ],
)
def test_a_scope_gives_its_right_where_its_patterns_match(scope: str, vhost: str, name: str, *, allowed: bool) -> None:
    assert Grant("u", [scope]).allowed("u", vhost, name, "read") is allowed


def test_scopes_add_up() -> None:
    grant = Grant("u", ["write:*/events/a.*", "write:*/events/b", "write:*/free", "write:*/both/x", "write:*/both"])
    for exchange, key in (("events", "a.1"), ("events", "b"), ("free", "x"), ("both", "y")):
        grant.check_topic("u", "/", exchange, key, "write")
    with pytest.raises(BrokerError, match="topic 'c'"):
        grant.check_topic("u", "/", "events", "c", "write")
    restricted = [name for name in ("events", "free", "both", "other") if grant.restricted("u", "/", name)]
    assert restricted == ["events"]
    assert grant.restricted_anywhere("u", "/")
    assert not Grant("u", ["read:*/*/a", "write:v/*/a"]).restricted_anywhere("u", "/")


def test_tags_are_scopes() -> None:
    assert Grant("u", ["tag:administrator", "tag:", "tag:monitoring", "tag:monitoring"]).tags == (
        "administrator",
        "monitoring",
    )


def test_repeated_scopes_count_once() -> None:
    assert Grant("u", ["read:*/*", "read:*/*"]).scopes == ("read:*/*",)


def test_many_names_take_bounded_memory() -> None:
    grant = Grant("u", ["read:*/*", "write:*/*/k*"])
    for number in range(3000):
        assert grant.allowed("u", "/", f"q{number}", "read")
        grant.check_topic("u", "/", "e", f"k{number}", "write")
    assert len(grant._verdicts) <= 1000
    assert len(grant._keys) <= 1000


@given(st.text(max_size=40))
def test_any_text_is_a_scope_or_none(text: str) -> None:
    found = parsed(text)
    assert found is None or found.right in {"configure", "write", "read"}


@pytest.mark.rule("SEC-1")
def test_a_door_opens_by_scopes_and_not_by_the_list_of_users() -> None:
    access = Access()
    access.add_user("u", "", ("administrator",))
    vhost: VirtualHost[Queue] = VirtualHost("/")
    vhost.declare_exchange("events", "topic", durable=False)
    door = Door(Grant("u", ["write:*/events/a"]), "u", vhost)
    door.check_publish("events", ["a"])
    with pytest.raises(BrokerError, match="topic 'b'"):
        door.check_publish("events", ["b"])
    assert not door.allows(Operation.CONSUME, queue="q")


@pytest.mark.rule("SEC-3")
def test_a_renewed_door_forgets_what_the_former_rights_allowed() -> None:
    vhost: VirtualHost[Queue] = VirtualHost("/")
    vhost.declare_exchange("e", "direct", durable=False)
    door = Door(Grant("u", ["write:*/e"]), "u", vhost)
    door.check_publish("e", ["k"])
    door.renew(Grant("u", ["write:*/other"]))
    with pytest.raises(BrokerError, match="exchange 'e'"):
        door.check_publish("e", ["k"])
