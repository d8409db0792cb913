"""Which of the policies of a virtual host counts for a name."""

from __future__ import annotations

from typing import Any

from escrowmq.core.policies.matching import PolicySet
from escrowmq.core.policies.merging import Effective
from escrowmq.core.policies.policy import EXCHANGE, Policy


def having(*policies: Policy) -> PolicySet:
    found = PolicySet()
    for policy in policies:
        found.put(policy)
    return found


def policy(name: str, pattern: str = "", definition: dict[str, Any] | None = None, **parts: Any) -> Policy:
    return Policy("/", name, pattern, definition or {"max-length": 1}, **parts)


def test_the_highest_priority_counts_and_then_the_first_name() -> None:
    found = having(policy("b"), policy("c", priority=1), policy("a"), policy("d", "^x", priority=2))
    assert found.effective("q", "classic") == Effective("c", "", {"max-length": 1})
    found.remove("c", operator=False)
    assert found.effective("q", "classic") == Effective("a", "", {"max-length": 1})


def test_the_pattern_is_found_anywhere_in_the_name() -> None:
    found = having(policy("p", "rder"))
    assert found.effective("orders", "classic")
    assert not found.effective("queue", "classic")


def test_an_empty_pattern_is_found_in_every_name() -> None:
    assert having(policy("p")).effective("anything", "classic")


def test_a_policy_that_does_not_suit_the_type_gives_way_to_the_next_one() -> None:
    found = having(policy("p", definition={"delivery-limit": 1}, priority=1), policy("o"))
    assert found.effective("q", "quorum") == Effective("p", "", {"delivery-limit": 1})
    assert found.effective("q", "classic") == Effective("o", "", {"max-length": 1})


def test_an_operator_policy_counts_beside_a_policy() -> None:
    found = having(policy("p", definition={"max-length": 5, "expires": 3}), policy("p", operator=True))
    assert found.effective("q", "classic") == Effective("p", "p", {"max-length": 1, "expires": 3})
    assert found.remove("p", operator=False)
    assert found.effective("q", "classic") == Effective("", "p", {"max-length": 1})
    assert found.remove("p", operator=True)
    assert not found.remove("p", operator=True)
    assert found.effective("q", "classic") is None
    assert not found


def test_exchanges_get_alternate_exchanges_but_the_default_exchange() -> None:
    found = having(policy("p", "^x", {"alternate-exchange": "a"}), policy("q", definition={"max-length": 1}))
    assert [found.alternate(name) for name in ("x", "y", "")] == ["a", None, None]
    assert found.alternates == {"a"}
    assert found.effective("y", EXCHANGE) == Effective("q", "", {"max-length": 1})


def test_a_copy_does_not_change_with_its_origin() -> None:
    found = having(policy("p"))
    twin = found.copy()
    found.remove("p", operator=False)
    assert twin.effective("q", "classic")


def test_patterns_that_are_gone_are_forgotten() -> None:
    found = PolicySet()
    for number in range(10):
        found.put(policy("p", f"^{number}"))
        found.effective("q", "classic")
    assert len(found._patterns) <= 3
    assert list(found) == [policy("p", "^9")]


def test_a_pattern_of_another_version_matches_nothing() -> None:
    assert having(policy("p", "(?=x)")).effective("x", "classic") is None
