"""Headers exchange: the arguments of the binding are compared with the headers of the message."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import ClassVar, Final, NamedTuple, TypeAlias

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import canonical, canonical_table, shown, type_name
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, BindingKey, Exchange, Q

_MATCH: Final = "x-match"
_MODES: Final = ("all", "any", "all-with-x", "any-with-x")
_PRESENT: Final = canonical(None)  # a binding's field without a value only requires the header to be present


_Field: TypeAlias = tuple[str, Hashable]
"""A header's name, and its canonical value or `_PRESENT`."""
_NONE: Final[dict[BindingKey, None]] = {}


class _Pattern(NamedTuple):
    every: bool
    fields: tuple[tuple[str, Hashable], ...]

    def matches(self, headers: dict[str, Hashable]) -> bool:
        for name, wanted in self.fields:
            if (name in headers and (wanted == _PRESENT or headers[name] == wanted)) is not self.every:
                return not self.every
        return self.every


class HeadersExchange(Exchange[Q]):
    """Compares with those bindings that have a field in common with the message.

    A binding that wants all of its fields is kept under one of them: the one that fewest others are kept under. A
    binding that wants any of its fields is kept under each.

    `x-match` says whether all fields must match (`all`, the default) or one of them (`any`). Fields whose names begin
    with `x-` count only in `all-with-x` and `any-with-x`. A binding without fields matches with `all` and does not
    match with `any`.
    """

    __slots__ = ("_by_field", "_patterns", "_unconditional")

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
        self._by_field: dict[_Field, dict[BindingKey, None]] = {}
        self._unconditional: dict[BindingKey, None] = {}

    @property
    def needs_headers(self) -> bool:
        return bool(self._patterns)

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        del routing_key
        seen = canonical_table(headers) if headers else {}
        candidates = dict(self._unconditional)
        for name, value in seen.items():
            candidates |= self._by_field.get((name, value), _NONE)
            candidates |= self._by_field.get((name, _PRESENT), _NONE)
        found: dict[Q | Exchange[Q], None] = {}
        for key in candidates:
            pattern, destination = self._patterns[key]
            if destination not in found and pattern.matches(seen):
                found[destination] = None
        return found

    def _index(self, binding: Binding[Q]) -> None:
        pattern = _pattern(binding.arguments)
        self._patterns[binding.key] = (pattern, binding.destination)
        if not pattern.fields:
            self._unconditional[binding.key] = None
            return
        fields = pattern.fields
        if pattern.every:
            fields = (min(fields, key=lambda field: len(self._by_field.get(field, _NONE))),)
        for field in fields:
            self._by_field.setdefault(field, {})[binding.key] = None

    def _unindex(self, binding: Binding[Q]) -> None:
        pattern, _ = self._patterns.pop(binding.key)
        self._unconditional.pop(binding.key, None)
        for field in pattern.fields:
            kept = self._by_field.get(field)
            if kept is not None:
                kept.pop(binding.key, None)
                if not kept:
                    del self._by_field[field]


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
