"""Headers exchange: the arguments of the binding are compared with the headers of the message."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import chain, repeat
from operator import attrgetter
from typing import ClassVar, Final, Generic, TypeAlias

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import canonical, canonical_table, shown, type_name
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, Exchange, Q

_MATCH: Final = "x-match"
_MODES: Final = ("all", "any", "all-with-x", "any-with-x")
_PRESENT: Final = canonical(None)  # a binding's field without a value only requires the header to be present


MOST_FIELDS: Final = 32
"""The number of fields in the arguments of one binding."""
MOST_ALIKE: Final = 250
"""The number of different patterns that are kept under one field, and so compared with each message that has it."""
MOST_STEPS: Final = 7000
"""The steps that comparing all patterns takes that share a field with others. A message that has all of their
fields takes up to 1.5 microseconds for each."""
_FIELDS_OF_STEP: Final = 8  # fields that are compared at the cost of one further step

_any, _all = attrgetter("any"), attrgetter("all")
_weight, _destinations = attrgetter("weight"), attrgetter("destinations")
_Key: TypeAlias = tuple[str, Hashable]
"""A header's name, and its canonical value or `_PRESENT`."""


class _Field(Generic[Q]):
    """A field that patterns name: the patterns kept under it, which want all or any of their fields.

    `uses` is the number of patterns that name it, `weight` the steps that comparing those under it takes.
    """

    __slots__ = ("all", "any", "uses", "weight")

    def __init__(self) -> None:
        self.all: dict[_Pattern[Q], None] = {}
        self.any: dict[_Pattern[Q], None] = {}
        self.uses = 0
        self.weight = 0

    @property
    def shared_weight(self) -> int:
        """The weight, if at least two patterns are kept here. A field with one pattern is found by the header alone."""
        return self.weight if len(self.all) + len(self.any) > 1 else 0


class _Pattern(Generic[Q]):
    """The arguments that some bindings share, and how many of these bindings lead to each destination.

    A pattern that wants all of its fields is kept under `home`.
    """

    __slots__ = ("destinations", "fields", "home", "weight")

    def __init__(self, fields: Iterable[_Field[Q]]) -> None:
        self.fields = frozenset(fields)
        self.home: _Field[Q] | None = None
        self.destinations: dict[Q | Exchange[Q], int] = {}
        self.weight = 1 + len(self.fields) // _FIELDS_OF_STEP


class HeadersExchange(Exchange[Q]):
    """Compares with those bindings that have a field in common with the message, and once with equal arguments.

    A pattern that wants all of its fields is kept under one of them: the one that fewest others are kept under. A
    pattern that wants any of its fields, or has only one, is kept under each, and matches if one of them is found.

    `x-match` says whether all fields must match (`all`, the default) or one of them (`any`). Fields whose names begin
    with `x-` count only in `all-with-x` and `any-with-x`. A binding without fields matches with `all` and does not
    match with `any`.
    """

    __slots__ = ("_fields", "_patterns", "_shared", "_steps", "_unconditional")

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
        self._patterns: dict[tuple[bool, frozenset[_Key]], _Pattern[Q]] = {}
        self._fields: dict[_Key, _Field[Q]] = {}
        self._unconditional: dict[_Pattern[Q], None] = {}
        self._steps = 0
        self._shared = 0  # the sum of the fields' shared weights

    @property
    def needs_headers(self) -> bool:
        return bool(self._patterns)

    @property
    def steps(self) -> int:
        return self._steps

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        del routing_key
        # Loops in C: a step of Python code for each header, pattern or field of a pattern would take several times as
        # long.
        seen: dict[_Field[Q], None] = {}
        if headers and self._fields:
            table = canonical_table(headers)
            keys = chain(table.items(), zip(table, repeat(_PRESENT), strict=False))
            seen = dict.fromkeys(filter(None, map(self._fields.get, keys)))
        matched = self._unconditional | dict.fromkeys(chain.from_iterable(map(_any, seen)))
        present = set(seen)
        for field in filter(_all, seen):
            matched |= dict.fromkeys([pattern for pattern in field.all if pattern.fields <= present])
        destinations = list(map(_destinations, matched))
        steps = len(seen) + sum(map(_weight, seen))
        self._steps = steps + len(destinations) + sum(map(len, destinations))
        return dict.fromkeys(chain.from_iterable(destinations))

    def check_binding(self, binding: Binding[Q]) -> None:
        every, keys = _pattern(binding.arguments)
        if len(keys) > MOST_FIELDS:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"a binding of headers exchange '{binding.source.name}' names {len(keys)} headers; "
                f"the limit is {MOST_FIELDS}",
            )
        if not keys or (every, frozenset(keys)) in self._patterns:
            return
        fields = [self._fields.get(key) for key in keys]
        shares = [field is not None and bool(field.all or field.any) for field in fields]
        if self._shared >= MOST_STEPS and (all(shares) if every else any(shares)):
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"headers exchange '{binding.source.name}' has as many bindings whose headers are also those of other "
                f"bindings as it can compare, {self._shared}; add a header with a value that no other binding has",
            )
        if every and len(fields) > 1 and all(field is not None and len(field.all) >= MOST_ALIKE for field in fields):
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"headers exchange '{binding.source.name}' compares {MOST_ALIKE} bindings, the limit, for each header "
                "of this binding; add a header with a value that fewer bindings have",
            )

    def _index(self, binding: Binding[Q]) -> None:
        every, keys = _pattern(binding.arguments)
        identity = every, frozenset(keys)
        pattern = self._patterns.get(identity)
        if pattern is None:
            pattern = self._patterns[identity] = _Pattern([self._fields.setdefault(key, _Field()) for key in keys])
            self._keep(pattern, every, [self._fields[key] for key in keys])
        target = binding.destination
        pattern.destinations[target] = pattern.destinations.get(target, 0) + 1

    def _keep(self, pattern: _Pattern[Q], every: bool, fields: list[_Field[Q]]) -> None:
        for field in fields:
            field.uses += 1
        if not every or len(fields) == 1:
            for field in fields:
                self._shared -= field.shared_weight
                field.any[pattern] = None
                field.weight += 1
                self._shared += field.shared_weight
        elif len(fields) > 1:
            home = pattern.home = min(fields, key=lambda field: (len(field.all), len(field.any)))
            self._shared -= home.shared_weight
            home.all[pattern] = None
            home.weight += pattern.weight
            self._shared += home.shared_weight
        else:
            self._unconditional[pattern] = None

    def _unindex(self, binding: Binding[Q]) -> None:
        every, keys = _pattern(binding.arguments)
        identity = every, frozenset(keys)
        pattern = self._patterns[identity]
        target = binding.destination
        pattern.destinations[target] -= 1
        if not pattern.destinations[target]:
            del pattern.destinations[target]
        if not pattern.destinations:
            del self._patterns[identity]
            self._drop(pattern, keys)

    def _drop(self, pattern: _Pattern[Q], keys: Iterable[_Key]) -> None:
        self._unconditional.pop(pattern, None)
        home = pattern.home
        if home is not None:
            self._shared -= home.shared_weight
            del home.all[pattern]
            home.weight -= pattern.weight
            self._shared += home.shared_weight
        for key in keys:
            field = self._fields[key]
            if pattern in field.any:
                self._shared -= field.shared_weight
                del field.any[pattern]
                field.weight -= 1
                self._shared += field.shared_weight
            field.uses -= 1
            if not field.uses:
                del self._fields[key]


def _pattern(arguments: Mapping[str, object]) -> tuple[bool, list[_Key]]:
    """Return whether all fields must match, and the fields in their order. Raises PRECONDITION_FAILED."""
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
    keys = [
        (name, canonical(value))
        for name, value in arguments.items()
        if name != _MATCH and (with_x or not name.startswith("x-"))
    ]
    return mode.startswith("all"), keys
