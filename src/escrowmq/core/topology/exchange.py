"""The base of all types of exchange: attributes, and bindings without duplicates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from escrowmq.core.messages.values import canonical

NO_ARGUMENTS: Final[Mapping[str, object]] = MappingProxyType({})

# Whether the destination is an exchange, its name, the routing key, the canonical arguments.
BindingKey: TypeAlias = tuple[bool, str, str, Hashable]


class Routable(Protocol):
    """The attributes of a queue that routing needs."""

    @property
    def name(self) -> str: ...

    @property
    def durable(self) -> bool: ...

    @property
    def admits(self) -> Callable[..., bool] | None:
        """Returns whether the queue takes a message; None if it takes every one."""
        ...


Q = TypeVar("Q", bound=Routable)


@dataclass(frozen=True, slots=True, eq=False)
class Binding(Generic[Q]):
    """Sends messages that `source` receives with this routing key and these arguments to `destination`."""

    source: Exchange[Q]
    destination: Q | Exchange[Q]
    routing_key: str
    arguments: Mapping[str, object]
    key: BindingKey = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "key", binding_key(self.to_exchange, self.destination.name, self.routing_key, self.arguments)
        )

    @property
    def to_exchange(self) -> bool:
        return isinstance(self.destination, Exchange)

    @property
    def durable(self) -> bool:
        """Whether the binding survives a restart, which it does if both of its ends do."""
        return self.source.durable and self.destination.durable


def binding_key(to_exchange: bool, destination: str, routing_key: str, arguments: Mapping[str, object]) -> BindingKey:
    """Return the identity of a binding within its source."""
    return (to_exchange, destination, routing_key, canonical(arguments) if arguments else ())


class Exchange(ABC, Generic[Q]):
    """A named rule for routing.

    `alternate` names the exchange for messages that are not routed here. An `internal` exchange takes messages only
    from other exchanges. An exchange with `auto_delete` is deleted when its last binding is removed.
    `bound_transiently` says that its durable bindings may not be enough to tell the ways of messages through it.
    """

    __slots__ = (
        "alternate",
        "arguments",
        "auto_delete",
        "bindings",
        "bound_transiently",
        "destinations",
        "durable",
        "filtering",
        "following",
        "internal",
        "name",
    )

    kind: ClassVar[str]
    reads_key: ClassVar[bool] = True
    delays: ClassVar[bool] = False  # messages may have to wait before they are routed
    owns_destinations: ClassVar[bool] = False  # what is bound to it is deleted with it, and not before
    divides: ClassVar[bool] = False  # a further destination takes messages from the others

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        alternate = arguments.get("alternate-exchange")
        self.alternate = alternate if isinstance(alternate, str) else None
        self.bindings: dict[BindingKey, Binding[Q]] = {}
        # So that a walk over exchanges need not look at each binding: how many there are to each destination, those to
        # exchanges, and how many bindings there are to queues that filter messages.
        self.destinations: dict[Q | Exchange[Q], int] = {}
        self.following: dict[Exchange[Q], None] = {}
        self.filtering = 0
        self.bound_transiently = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def needs_headers(self) -> bool:
        """Whether `match` currently looks at the headers, so that its result depends on more than the routing
        key.
        """
        return False

    @property
    def leading_words(self) -> int | None:
        """How many words at the beginning of a routing key, with the number of its words, determine its destinations.
        None if the whole key does.
        """
        return None

    @property
    def steps(self) -> int:
        """The steps of the last `match`, apart from one for each destination that it returned."""
        return 0

    def check_binding(self, binding: Binding[Q]) -> None:
        """Raises PRECONDITION_FAILED if messages would have to be compared with too much because of a new binding.

        Bindings that exist already, in a journal, are not checked.
        """

    def bind(self, binding: Binding[Q]) -> bool:
        """Add `binding`; return False if it exists. Raises PRECONDITION_FAILED if this type does not allow its
        arguments.
        """
        if binding.key in self.bindings:
            return False
        self._index(binding)
        self.bindings[binding.key] = binding
        target = binding.destination
        self.destinations[target] = self.destinations.get(target, 0) + 1
        if isinstance(target, Exchange):
            self.following[target] = None
        elif target.admits is not None:
            self.filtering += 1
        return True

    def unbind(self, key: BindingKey) -> Binding[Q] | None:
        """Remove and return a binding, or return None if it does not exist."""
        binding = self.bindings.pop(key, None)
        if binding is not None:
            self._unindex(binding)
            self._lose(binding.destination)
        return binding

    def unbind_last(self) -> Binding[Q]:
        """Remove and return the binding that was made last; there must be one."""
        _, binding = self.bindings.popitem()
        self._unindex(binding)
        self._lose(binding.destination)
        return binding

    def _lose(self, target: Q | Exchange[Q]) -> None:
        self.destinations[target] -= 1
        if not isinstance(target, Exchange) and target.admits is not None:
            self.filtering -= 1
        if not self.destinations[target]:
            del self.destinations[target]
            if isinstance(target, Exchange):
                del self.following[target]

    def hides(self, binding: Binding[Q]) -> bool:
        """Return whether a binding that does not survive a restart may change which durable queues get messages."""
        return self.durable and not binding.durable and (binding.to_exchange or self.divides or bool(self.alternate))

    @abstractmethod
    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        """Return the destinations of a message, each at least once."""

    @abstractmethod
    def _index(self, binding: Binding[Q]) -> None: ...

    @abstractmethod
    def _unindex(self, binding: Binding[Q]) -> None: ...
