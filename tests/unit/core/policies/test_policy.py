"""What is allowed in a policy, and to which types of queue it applies."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.policies.policy import CHECKS, EXCHANGE, OPERATOR_KEYS, Policy, policy_of


def policy(definition: dict[str, Any], **parts: Any) -> Policy:
    return Policy("/", **{"name": "p", "pattern": "", "definition": definition} | parts)


def test_a_policy_with_every_key_is_allowed() -> None:
    values: dict[str, Any] = {
        "alternate-exchange": "a",
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "k",
        "dead-letter-strategy": "at-least-once",
        "ha-mode": "all",
        "ha-params": ["n1"],
        "ha-promote-on-failure": "always",
        "ha-promote-on-shutdown": "when-synced",
        "ha-sync-mode": "automatic",
        "max-age": "7D",
        "overflow": "reject-publish",
        "queue-leader-locator": "balanced",
        "queue-master-locator": "random",
        "queue-mode": "lazy",
        "queue-version": 2,
    }
    for key in CHECKS:
        policy({key: values.get(key, 1)}).check()
    assert values.keys() <= CHECKS.keys()


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"definition": {}}, "no policy provided"),
        ({"definition": {"max-lengths": 1}}, "max-lengths: not recognised policy settings"),
        ({"definition": {"max-priority": 1}}, "max-priority: not recognised"),
        ({"definition": {"max-length": -1}}, "max-length: {value_negative,-1}"),
        ({"definition": {"max-length": "1"}}, "max-length: "),
        ({"definition": {"max-length": True}}, "max-length: "),
        ({"definition": {"message-ttl": 1.5}}, "message-ttl: "),
        ({"definition": {"expires": 0}}, "expires: {value_zero,0}"),
        ({"definition": {"overflow": "drop"}}, "overflow: invalid_overflow"),
        ({"definition": {"max-age": "7"}}, "max-age: invalid_max_age"),
        (
            {"definition": {"dead-letter-exchange": "x" * 256}},
            "the value has more than 255 bytes",
        ),
        ({"definition": {"ha-params": ["x" * 300]}}, "ha-params: the value is too long"),
        (
            {"operator": True, "definition": {"overflow": "drop-head"}},
            "overflow: not recognised operator policy",
        ),
        ({"name": ""}, "a policy needs a name"),
        ({"apply_to": "topics"}, "apply-to: 'topics' is not known"),
        ({"priority": 1.5}, "priority: a whole number"),
        ({"priority": 2**31}, "priority: a whole number"),
        ({"pattern": "(?=x)"}, "invalid regular expression"),
        ({"pattern": "x" * 1025}, "pattern: it has more than 1024 bytes"),
    ],
)
def test_what_is_not_allowed_is_refused_with_the_reason(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(BrokerError) as refused:
        policy(**{"definition": {"max-length": 1}} | parts).check()
    assert refused.value.condition is Condition.INVALID_ARGUMENT
    assert reason in refused.value.text


def test_operator_policies_have_limits_only() -> None:
    for key in OPERATOR_KEYS:
        policy({key: 1}, operator=True).check()


@pytest.mark.parametrize(
    ("apply_to", "kinds"),
    [
        ("all", {EXCHANGE, "classic", "quorum"}),
        ("exchanges", {EXCHANGE}),
        ("queues", {"classic", "quorum"}),
        ("classic_queues", {"classic"}),
        ("quorum_queues", {"quorum"}),
        ("streams", set()),
    ],
)
def test_a_policy_suits_what_it_applies_to_and_what_knows_its_keys(apply_to: str, kinds: set[str]) -> None:
    made = policy({"message-ttl": 1}, apply_to=apply_to)
    assert {kind for kind in (EXCHANGE, "classic", "quorum", "stream") if made.suits(kind)} == kinds


@pytest.mark.parametrize(
    ("key", "kinds"),
    [
        ("delivery-limit", {"quorum"}),
        ("max-age", {"stream"}),
        ("max-length-bytes", {"classic", "quorum", "stream"}),
        ("alternate-exchange", {"classic", "quorum", "stream"}),
        ("ha-mode", {"classic"}),
    ],
)
def test_a_policy_with_a_key_that_a_type_does_not_know_does_not_suit_it(key: str, kinds: set[str]) -> None:
    made = policy({"max-length-bytes": 1, key: 1})
    assert {kind for kind in ("classic", "quorum", "stream") if made.suits(kind)} == kinds


def test_a_record_keeps_every_part() -> None:
    made = Policy("v", "n", "^x", {"max-length": 1}, 3, "queues", operator=True)
    assert policy_of(made.fields()) == made
