"""Headers exchange: the arguments of the binding are compared with the headers of the message."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import ClassVar, Final, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import canonical, canonical_table, shown, type_name
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, BindingKey, Exchange, Q

_MATCH: Final = "x-match"
_MODES: Final = ("all", "any", "all-with-x", "any-with-x")
_PRESENT: Final = canonical(None)  # a binding's field without a value only requires the header to be present


class _Pattern(NamedTuple):
    every: bool
    fields: tuple[tuple[str, Hashable], ...]

    def matches(self, headers: dict[str, Hashable]) -> bool:
        for name, wanted in self.fields:
            if (name in headers and (wanted == _PRESENT or headers[name] == wanted)) is not self.every:
                return not self.every
        return self.every


class HeadersExchange(Exchange[Q]):
    """Compares the headers with each binding in turn.

    `x-match` says whether all fields must match (`all`, the default) or one of them (`any`). Fields whose names begin
    with `x-` count only in `all-with-x` and `any-with-x`. A binding without fields matches with `all` and does not
    match with `any`.
    """

    __slots__ = ("_patterns",)

    kind: ClassVar[str] = "headers"
    reads_key: ClassVar[bool] = False

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
        self._patterns: dict[BindingKey, tuple[_Pattern, Q | Exchange[Q]]] = {}

    @property
    def needs_headers(self) -> bool:
        return bool(self._patterns)

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Iterable[Q | Exchange[Q]]:
        del routing_key
        seen = canonical_table(headers) if headers else {}
        return [destination for pattern, destination in self._patterns.values() if pattern.matches(seen)]

    def _index(self, binding: Binding[Q]) -> None:
        self._patterns[binding.key] = (_pattern(binding.arguments), binding.destination)

    def _unindex(self, binding: Binding[Q]) -> None:
        del self._patterns[binding.key]


def _pattern(arguments: Mapping[str, object]) -> _Pattern:
    mode = arguments.get(_MATCH, "all")
    if not isinstance(mode, str):
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"Invalid x-match field type {type_name(mode)} (value {shown(mode)}); expected longstr",
        )
    if mode not in _MODES:
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f'Invalid x-match field value <<"{mode}">>; expected all, any, all-with-x, or any-with-x',
        )
    with_x = mode.endswith("-with-x")
    fields = tuple(
        (name, canonical(value))
        for name, value in arguments.items()
        if name != _MATCH and (with_x or not name.startswith("x-"))
    )
    return _Pattern(mode.startswith("all"), fields)
