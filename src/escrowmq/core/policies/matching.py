"""The policies of one virtual host, and which of them count for a queue or an exchange.

A pattern is searched for anywhere in a name, in time linear in its length. The audit matches with this module, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from escrowmq.core.access.permissions import Pattern
from escrowmq.core.conditions import BrokerError
from escrowmq.core.policies.merging import Effective, combined
from escrowmq.core.policies.policy import ALTERNATE_EXCHANGE, EXCHANGE, Policy

_EVERYTHING: Final = "^"
"""A pattern that is found in every name, as the empty one is in RabbitMQ."""


class PolicySet:
    """Policies by name, and those that may apply in the order in which they are tried."""

    __slots__ = ("_effective", "_kinds", "_patterns", "operator", "ordinary")

    def __init__(self) -> None:
        self.ordinary: dict[str, Policy] = {}
        self.operator: dict[str, Policy] = {}
        self._patterns: dict[str, Pattern] = {}
        self._kinds: dict[tuple[bool, str], list[tuple[Pattern, Policy]]] = {}
        self._effective: dict[tuple[str, str], Effective] = {}

    def __len__(self) -> int:
        return len(self.ordinary) + len(self.operator)

    def __iter__(self) -> Iterator[Policy]:
        yield from self.ordinary.values()
        yield from self.operator.values()

    def of(self, *, operator: bool) -> dict[str, Policy]:
        """Return the policies, or the operator policies, by name."""
        return self.operator if operator else self.ordinary

    def copy(self) -> PolicySet:
        """Return a set with the same policies."""
        twin = PolicySet()
        twin.ordinary, twin.operator = dict(self.ordinary), dict(self.operator)
        twin._patterns = dict(self._patterns)
        return twin

    def put(self, policy: Policy) -> None:
        """Add or replace a policy, without any check."""
        self.of(operator=policy.operator)[policy.name] = policy
        self._changed()

    def remove(self, name: str, *, operator: bool) -> bool:
        """Remove a policy. Return whether it existed."""
        found = self.of(operator=operator).pop(name, None)
        self._changed()
        return found is not None

    def _changed(self) -> None:
        if len(self._patterns) > 2 * len(self):
            self._patterns.clear()
        self._kinds.clear()
        self._effective.clear()

    def effective(self, name: str, kind: str) -> Effective | None:
        """Return what the policies say about a queue of a type, or an exchange; None if none applies."""
        policy, limits = self._first(name, kind, operator=False), self._first(name, kind, operator=True)
        if policy is None and limits is None:
            return None
        names = policy.name if policy else "", limits.name if limits else ""
        found = self._effective.get(names)
        if found is None:
            definition = combined(policy.definition if policy else {}, limits.definition if limits else {})
            found = self._effective[names] = Effective(*names, definition)
        return found

    def _first(self, name: str, kind: str, *, operator: bool) -> Policy | None:
        for pattern, policy in self._tried(kind, operator=operator):
            if pattern.found_in(name):
                return policy
        return None

    def _tried(self, kind: str, *, operator: bool) -> list[tuple[Pattern, Policy]]:
        tried = self._kinds.get((operator, kind))
        if tried is None:
            suiting = [policy for policy in self.of(operator=operator).values() if policy.suits(kind)]
            suiting.sort(key=lambda policy: (-policy.priority, policy.name))
            tried = [(pattern, policy) for policy in suiting if (pattern := self._compiled(policy.pattern)) is not None]
            self._kinds[operator, kind] = tried
        return tried

    def _compiled(self, text: str) -> Pattern | None:
        found = self._patterns.get(text)
        if found is None:
            try:
                found = self._patterns[text] = Pattern(text or _EVERYTHING)
            except BrokerError:  # only in a journal of another version; it matches nothing
                return None
        return found

    def alternate(self, exchange: str) -> str | None:
        """Return the alternate exchange that policies give to an exchange; None if they give none."""
        if not exchange:
            return None  # the default exchange has none
        found = self.effective(exchange, EXCHANGE)
        name = found.definition.get(ALTERNATE_EXCHANGE) if found else None
        return name if isinstance(name, str) else None

    @property
    def alternates(self) -> frozenset[str]:
        """The alternate exchanges that some exchanges may have from policies."""
        tried = self._tried(EXCHANGE, operator=False)
        return frozenset(
            str(name) for _, policy in tried if (name := policy.definition.get(ALTERNATE_EXCHANGE)) is not None
        )
