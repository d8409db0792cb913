"""Operations on policies, operator policies and global parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from escrowmq.admin.authority import checked_name
from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.admin.values import NESTED, is_nested
from escrowmq.core.policies.merging import Effective
from escrowmq.core.policies.policy import Policy

T = TypeVar("T")


class PolicyAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns, and all queues follow
    it.
    """

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._directory = process.broker.directory
        self._policies = process.broker.directory.policies
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "policy.list": self.list_policies,
            "policy.set": self.set_policy,
            "policy.clear": self.clear_policy,
            "operator_policy.list": self.list_operator_policies,
            "operator_policy.set": self.set_operator_policy,
            "operator_policy.clear": self.clear_operator_policy,
            "parameter.list": self.list_parameters,
            "parameter.set": self.set_parameter,
            "parameter.clear": self.clear_parameter,
        }

    async def list_policies(self, vhost: str | None = None) -> Listing:
        """Return every policy, or those of one virtual host. Raises BrokerError for an unknown one."""
        return self._listing(vhost, operator=False)

    async def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "all",
    ) -> bool:
        """Add or replace a policy. Return whether it is new. Raises BrokerError with the reason of a refusal."""
        return await self._set(Policy(vhost, name, pattern, definition, priority, apply_to))

    async def clear_policy(self, vhost: str, name: str) -> None:
        """Remove a policy. Raises NOT_FOUND."""
        await self._clear(vhost, name, operator=False)

    async def list_operator_policies(self, vhost: str | None = None) -> Listing:
        """Return operator policies, like `list_policies`."""
        return self._listing(vhost, operator=True)

    async def set_operator_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        priority: int = 0,
        apply_to: str = "queues",
    ) -> bool:
        """Add or replace an operator policy, like `set_policy`."""
        return await self._set(Policy(vhost, name, pattern, definition, priority, apply_to, operator=True))

    async def clear_operator_policy(self, vhost: str, name: str) -> None:
        """Remove an operator policy. Raises NOT_FOUND."""
        await self._clear(vhost, name, operator=True)

    def _listing(self, vhost: str | None, *, operator: bool) -> Listing:
        vhosts = list(self._directory.vhosts) if vhost is None else [self._directory.vhost(vhost).name]
        return Listing(self._pieces, self._rows(vhosts, operator=operator))

    def _rows(self, vhosts: list[str], *, operator: bool) -> Iterator[Row | None]:
        for vhost in vhosts:
            yield from map(policy_row, list(self._policies.of(vhost).of(operator=operator).values()))

    async def _set(self, policy: Policy) -> bool:
        checked_name(policy.name, "name of a policy")
        return await self._followed(policy.vhost, lambda: self._policies.put(policy))

    async def _clear(self, vhost: str, name: str, *, operator: bool) -> None:
        await self._followed(vhost, lambda: self._policies.remove(vhost, name, operator=operator))

    async def _followed(self, vhost: str, change: Callable[[], T]) -> T:
        """Make a change, and wait until it is on disk and all queues follow it."""
        result = await self._process.durably(change)
        while not self._policies.is_followed(vhost):
            await self._process.turn()
        return result

    async def list_parameters(self) -> Listing:
        """Return every global parameter."""
        values = list(self._policies.parameters.values.items())
        return Listing(self._pieces, iter([{"name": name, "value": value} for name, value in values]))

    async def set_parameter(self, name: str, value: Any) -> bool:
        """Set a global parameter. Return whether it is new. Raises BrokerError, OperationRefused."""
        checked_name(name, "name of a parameter")
        if is_nested(value):
            raise OperationRefused(NESTED)
        return await self._process.durably(lambda: self._policies.parameters.put(name, value))

    async def clear_parameter(self, name: str) -> None:
        """Remove a global parameter. Raises NOT_FOUND."""
        await self._process.durably(lambda: self._policies.parameters.remove(name))


def policy_row(policy: Policy) -> Row:
    """Return a policy for a list."""
    fields = policy.fields()
    del fields["operator"]
    return fields


def effective_row(effective: Effective | None) -> Row:
    """Return what policies say about a queue or an exchange, for its row in a list."""
    policy, operator_policy, definition = effective or Effective()
    return {
        "policy": policy,
        "operator_policy": operator_policy,
        "effective_policy_definition": dict(definition),
    }
