"""Routing from an exchange and a routing key to queues, cached until the topology changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from escrowmq.core.budget import STEPS
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.exchange import Exchange, Q

CACHE_LIMIT: Final = 65_536
_FEW: Final = 16  # one in so many destinations is new: to sort these few takes less time than to look at all
_name = attrgetter("name")
K = TypeVar("K", bound=Hashable)


class Router(Generic[Q]):
    """Routes through `exchanges`, which belong to a virtual host that reports its changes here.

    `version` changes whenever a route may have changed, so a caller can cache a route beside it. `topology` changes
    whenever exchanges or bindings do.
    """

    __slots__ = (
        "_alternates",
        "_cached",
        "_default_is_alternate",
        "_exchanges",
        "_gone",
        "_keyless",
        "_limit",
        "_needing",
        "_routes",
        "_steps",
        "_vhost",
        "topology",
        "version",
    )

    def __init__(
        self,
        vhost: str,
        exchanges: Mapping[str, Exchange[Q]],
        gone: Mapping[Q | Exchange[Q], None],
        *,
        cache_limit: int = CACHE_LIMIT,
    ) -> None:
        """`gone` has deleted queues and exchanges that still have bindings. Nothing is routed to them."""
        self._vhost = vhost
        self._exchanges = exchanges
        self._gone = gone
        self._limit = cache_limit
        self._routes: dict[str, dict[str, tuple[Q, ...]]] = {}
        self._cached = 0
        self._keyless: dict[str, tuple[Q, ...]] = {}  # routes that are the same for every routing key
        self._needing: dict[str, tuple[bool, bool]] = {}
        self._default_is_alternate = False
        self._alternates: Callable[[str], str | None] | None = None
        self.version = 0
        self.topology = 0
        self._steps = 0  # not yet charged

    def route(
        self,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object] | None = None,
        more_keys: Sequence[str] = (),
    ) -> tuple[Q, ...]:
        """Return the queues that get a message, each once, in the order in which they were bound. To sort 20,000 of
        them would take ten times as long as to find them.

        `more_keys` are routed like the routing key (CC, BCC). `headers` matter only if `needs_headers(exchange)`.
        Raises NOT_FOUND if there is no such exchange.
        """
        routes = self._routes.get(exchange)
        if routes is not None and not more_keys:
            queues = routes.get(routing_key)
            if queues is not None:
                return queues
        return self._resolve(exchange, routing_key, headers, more_keys)

    def route_each(self, exchange: str, routing_keys: Iterable[tuple[K, str]]) -> dict[K, tuple[Q, ...]]:
        """Return the queues of each routing key, as `route` does, for keys that are seldom the same twice.

        They are given with any name of theirs. If the exchange leads to queues only, the routes are not cached, which
        would cost more than finding them. Raises NOT_FOUND if there is no such exchange.
        """
        given = self._exchange(exchange)
        if not self._leads_to_queues(given):
            return {name: self.route(exchange, key) for name, key in routing_keys}
        match = given.match
        found: dict[K, tuple[Q, ...]] = {}
        steps = 0
        for name, key in routing_keys:
            matched: Collection[Any] = match(key, None)
            steps += 1 + len(matched)
            found[name] = tuple(dict.fromkeys(matched)) if len(matched) > 1 else tuple(matched)
        self._steps += steps
        return found

    def leading_words(self, exchange: str) -> int | None:
        """Return how many words at the beginning of a routing key, with the number of its words, determine its queues;
        None if the whole key does, or if this is not known. Raises NOT_FOUND if there is no such exchange.
        """
        given = self._exchange(exchange)
        return given.leading_words if self._leads_to_queues(given) else None

    def _leads_to_queues(self, given: Exchange[Q]) -> bool:
        """Return whether the routing key alone determines the route, which leads to queues only."""
        return not (given.needs_headers or given.following or self._gone or self._name_of_alternate(given) is not None)

    def take_cost(self) -> int:
        """Return the cost of all walks since the last call, in units of the budget for requests.

        A step is an exchange, or a binding that matches or is compared. Steps that make less than a unit are left to
        the next call.
        """
        cost, self._steps = divmod(self._steps, STEPS)
        return cost

    def reached(self, exchange: str, routing_keys: Sequence[str]) -> list[Exchange[Q]]:
        """Return the exchanges that a message with these routing keys passes on its way, the first one included.

        An exchange that routes by headers counts as leading to all of its destinations. Raises NOT_FOUND.
        """
        reached = [self._exchange(exchange)]
        seen: set[Q | Exchange[Q]] = {*reached}
        for each in reached:  # grows during the loop, as in `_resolve`
            if each.needs_headers:
                matched = set(each.destinations)
            else:
                matched = {target for key in routing_keys for target in each.match(key, None)}
            self._steps += 1 + len(matched)
            matched.difference_update(self._gone)
            alternate = self._alternate(each)
            if alternate is not None and (not matched or each.needs_headers):
                matched.add(alternate)
            matched -= seen
            seen |= matched
            reached += [target for target in matched if isinstance(target, Exchange)]
        return reached

    def reachable(self, exchange: str) -> list[Exchange[Q]]:
        """Return the exchanges that a message with any routing key may pass, the first one included. Raises
        NOT_FOUND.
        """
        reachable = [self._exchange(exchange)]
        seen = {*reachable}
        for each in reachable:  # grows during the loop, as in `_resolve`
            found = {*each.following}
            alternate = self._alternate(each)
            if alternate is not None:
                found.add(alternate)
            self._steps += 1 + len(found)
            found -= seen
            found.difference_update(self._gone)
            seen |= found
            reachable += found
        return reachable

    def needs_headers(self, exchange: str) -> bool:
        """Return whether routing through `exchange` currently depends on headers. Raises NOT_FOUND."""
        return self._needs(exchange)[0]

    def needs_content(self, exchange: str) -> bool:
        """Return whether it depends on headers, or queues filter the messages. Raises NOT_FOUND."""
        return any(self._needs(exchange))

    def _needs(self, exchange: str) -> tuple[bool, bool]:
        """Return whether routing through `exchange` depends on headers, and whether queues behind it filter messages.

        Queues do not filter messages that were published to them by name.
        """
        known = self._needing.get(exchange)
        if known is None:
            reachable = self.reachable(exchange)
            by_headers = any(each.needs_headers for each in reachable)
            known = self._needing[exchange] = by_headers, any(each.filtering for each in reachable)
        return known

    def changed(self) -> None:
        """Forget all routes, because exchanges or bindings changed."""
        self._routes.clear()
        self._keyless.clear()
        self._needing.clear()
        self._cached = 0
        self.version += 1
        self.topology += 1

    def use_alternates(self, alternates: Callable[[str], str | None] | None, *, default: bool) -> None:
        """Let exchanges without an alternate exchange of their own have the one that `alternates` returns for their
        name. `default` says whether that may be the default exchange.
        """
        if alternates is not None or self._alternates is not None:
            self._alternates = alternates
            self._default_is_alternate = self._default_is_alternate or default
            self.changed()

    def alternate_of_policy(self, exchange: Exchange[Q]) -> str | None:
        """Return the name of the alternate exchange that an exchange has, but not of its own."""
        if exchange.alternate is not None or self._alternates is None:
            return None
        return self._alternates(exchange.name)

    def exchange_added(self, exchange: Exchange[Q]) -> None:
        """Like `changed`, for a new exchange."""
        if exchange.alternate == "":
            self._default_is_alternate = True
        self.changed()

    def queue_changed(self, name: str) -> None:
        """A queue without bindings was added or removed. Only routes of the default exchange to it are forgotten.

        Clients that make a reply queue for each request must not slow down all others.
        """
        if self._default_is_alternate:
            self.changed()
            return
        routes = self._routes.get("")
        if routes is not None and routes.pop(name, None) is not None:
            self._cached -= 1
        self.version += 1

    def _resolve(
        self, name: str, routing_key: str, headers: Mapping[str, object] | None, more_keys: Sequence[str]
    ) -> tuple[Q, ...]:
        keyless = self._keyless.get(name)
        if keyless is not None:
            return keyless
        reached = [self._exchange(name)]
        seen: set[Q | Exchange[Q]] = {*reached}
        queues: dict[Any, None] = {}
        cacheable, gone = not more_keys, self._gone
        for exchange in reached:  # grows during the loop; it contains each exchange once, so cycles end
            cacheable = cacheable and not exchange.needs_headers
            matched = exchange.match(routing_key, headers)
            self._steps += exchange.steps
            if more_keys and exchange.reads_key:
                matched = [*matched, *chain.from_iterable([exchange.match(key, headers) for key in more_keys])]
            if gone:
                matched = [target for target in matched if target not in gone]
            exchanges: Collection[Q | Exchange[Q]] = exchange.following
            if not matched:
                alternate = self._alternate(exchange)
                if alternate is not None:
                    matched = exchanges = (alternate,)
            self._steps += 1 + len(matched)
            new = set(matched)
            new -= seen  # a step of Python code for each of the others would take ten times as long
            seen |= new
            if len(new) < len(matched):
                matched = _in_order(matched, new) if new else ()
            if exchanges:
                following: list[Any] = [target for target in matched if target in exchanges]
                reached += following
                new.difference_update(following)
                matched = [target for target in matched if target in new]
            queues |= dict.fromkeys(matched)
        found: tuple[Q, ...] = tuple(queues)
        if not any(exchange.reads_key or exchange.needs_headers for exchange in reached):
            self._keyless[name] = found
        elif cacheable:
            self._remember(name, routing_key, found)
        return found

    def _remember(self, exchange: str, routing_key: str, queues: tuple[Q, ...]) -> None:
        if self._cached >= self._limit:
            self._routes.clear()
            self._cached = 0
        self._routes.setdefault(exchange, {})[routing_key] = queues
        self._cached += 1

    def _exchange(self, name: str) -> Exchange[Q]:
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise BrokerError(Condition.NOT_FOUND, f"no exchange '{name}' in vhost '{self._vhost}'")
        return exchange

    def _alternate(self, exchange: Exchange[Q]) -> Exchange[Q] | None:
        name = exchange.alternate
        if name is None and self._alternates is not None:
            name = self._alternates(exchange.name)
        return self._exchanges.get(name) if name is not None else None

    def _name_of_alternate(self, exchange: Exchange[Q]) -> str | None:
        return exchange.alternate if exchange.alternate is not None else self.alternate_of_policy(exchange)


def _in_order(matched: Collection[Any], new: set[Any]) -> list[Any]:
    """Return the members of `new` once, in an order that does not depend on their addresses."""
    if len(new) * _FEW < len(matched):
        return sorted(new, key=_name)
    return [target for target in dict.fromkeys(matched) if target in new]
