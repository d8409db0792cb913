"""Both kinds of rules answer the same questions in the same words."""

from __future__ import annotations

import pytest

from escrowmq.core.access.access import Access
from escrowmq.core.access.grant import Grant
from escrowmq.core.access.rules import AccessRules
from escrowmq.core.conditions import BrokerError


def listed() -> AccessRules:
    access = Access()
    access.add_vhost("/")
    access.add_user("alice", "", ("monitoring",))
    access.set_permission("alice", "/", "", "^events$", "^mine$")
    access.set_topic_permission("alice", "/", "events", "^a$", ".*")
    return access


def granted() -> AccessRules:
    return Grant("alice", ["write:%2F/events/a", "read:%2F/mine", "tag:monitoring"])


@pytest.fixture(params=[listed, granted])
def rules(request: pytest.FixtureRequest) -> AccessRules:
    made: AccessRules = request.param()
    return made


@pytest.mark.rule("SEC-1")
def test_rights_come_from_either_kind(rules: AccessRules) -> None:
    assert rules.allowed("alice", "/", "mine", "read")
    assert not rules.allowed("alice", "/", "mine", "write")
    assert not rules.allowed("alice", "/", "other", "read")
    assert not rules.allowed("alice", "other", "mine", "read")
    assert not rules.allowed("alice", "/", "", "write")
    assert (rules.enters("alice", "/"), rules.enters("alice", "other")) == (True, False)
    assert list(rules.tags_of("alice")) == ["monitoring"]
    assert (rules.restricted("alice", "/", "events"), rules.restricted("alice", "/", "other")) == (True, False)
    assert (rules.restricted_anywhere("alice", "/"), rules.restricted_anywhere("alice", "other")) == (True, False)


@pytest.mark.rule("SEC-1")
def test_refusals_of_either_kind_have_the_same_text(rules: AccessRules) -> None:
    rules.check("alice", "/", "queue", "mine", "read")
    rules.check_topic("alice", "/", "events", "a", "write")
    rules.check_vhost("alice", "/")
    with pytest.raises(BrokerError, match=r"access to exchange 'amq\.default' in vhost '/' refused for user 'alice'"):
        rules.check("alice", "/", "exchange", "", "write")
    with pytest.raises(
        BrokerError, match="access to topic 'b' in exchange 'events' in vhost '/' refused for user 'alice'"
    ):
        rules.check_topic("alice", "/", "events", "b", "write")
    with pytest.raises(BrokerError, match="vhost"):
        rules.check_vhost("alice", "other")
