"""Exchange of type `x-delayed-message`: routes like another type, and messages with a delay wait before that.

The type and its argument are those of RabbitMQ's plugin. `Engine.route` asks for the delay; `match` is called when a
message is due.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, Exchange, Q
from escrowmq.core.topology.exchanges.direct import DirectExchange
from escrowmq.core.topology.exchanges.fanout import FanoutExchange
from escrowmq.core.topology.exchanges.headers import HeadersExchange
from escrowmq.core.topology.exchanges.topic import TopicExchange

TYPE_ARGUMENT: Final = "x-delayed-type"
_TYPES: Final[Mapping[object, type[Exchange[Any]]]] = MappingProxyType(
    {kind.kind: kind for kind in (DirectExchange, FanoutExchange, TopicExchange, HeadersExchange)}
)


class DelayedExchange(Exchange[Q]):
    """Raises PRECONDITION_FAILED if the argument `x-delayed-type` names no type of exchange."""

    __slots__ = ("_inner",)

    kind: ClassVar[str] = "x-delayed-message"
    delays: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        super().__init__(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        wanted = arguments.get(TYPE_ARGUMENT)
        make = _TYPES.get(wanted) if isinstance(wanted, str) else None
        if make is None:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"invalid argument '{TYPE_ARGUMENT}' for exchange '{name}': it must be one of {', '.join(_names())}",
            )
        self._inner: Exchange[Q] = make(name)

    @property
    def needs_headers(self) -> bool:
        """Return True: the delay is in the headers."""
        return True

    @property
    def steps(self) -> int:
        return self._inner.steps

    def check_binding(self, binding: Binding[Q]) -> None:
        self._inner.check_binding(binding)

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        return self._inner.match(routing_key, headers)

    def _index(self, binding: Binding[Q]) -> None:
        self._inner.bind(binding)

    def _unindex(self, binding: Binding[Q]) -> None:
        self._inner.unbind(binding.key)


def _names() -> list[str]:
    return sorted(kind.kind for kind in _TYPES.values())
