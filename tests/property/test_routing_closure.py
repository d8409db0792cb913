"""Routing through any graph of exchanges is the closure over its bindings, also directly after a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from escrowmq.core.topology.vhost import VirtualHost
from tests.property.test_topic_matching import matches, words
from tests.unit.core.named_queue import NamedQueue

EXCHANGES = ("d", "f", "t", "h", "e")
KINDS = ("direct", "fanout", "topic", "headers")
QUEUES = ("q1", "q2", "q3")
KEYS = ("", "a", "a.b", "q1")
PATTERNS = (*KEYS, "#", "*", "a.#")
HEADERS: tuple[dict[str, Any] | None, ...] = (None, {"n": 1}, {"n": True, "m": "x"})
ARGUMENTS: tuple[dict[str, Any], ...] = ({}, {"n": 1}, {"x-match": "any", "n": 1, "m": "x"})

Target = tuple[bool, str]


@dataclass
class ModelExchange:
    kind: str
    auto_delete: bool
    alternate: str | None
    bindings: list[tuple[Target, str, dict[str, Any]]] = field(default_factory=list)

    def matched(self, key: str, headers: Mapping[str, Any] | None) -> set[Target]:
        return {target for target, bound, arguments in self.bindings if self._accepts(bound, arguments, key, headers)}

    def _accepts(self, bound: str, arguments: dict[str, Any], key: str, headers: Mapping[str, Any] | None) -> bool:
        if self.kind == "headers":
            wanted = {name: value for name, value in arguments.items() if not name.startswith("x-")}
            have = headers or {}
            same = [name in have and repr(have[name]) == repr(value) for name, value in wanted.items()]
            return any(same) if arguments.get("x-match") == "any" else all(same)
        if self.kind == "topic":
            return matches(words(bound), words(key))
        return self.kind == "fanout" or bound == key


class Topology(RuleBasedStateMachine):
    """A virtual host, and a model of it without index, cache or order."""

    def __init__(self) -> None:
        super().__init__()
        self.host: VirtualHost[NamedQueue] = VirtualHost("/")
        self.exchanges: dict[str, ModelExchange] = {}
        self.queues: set[str] = set()

    @initialize(kinds=st.tuples(*[st.sampled_from(KINDS)] * len(EXCHANGES)), auto_delete=st.booleans())
    def begin(self, kinds: tuple[str, ...], auto_delete: bool) -> None:
        for name, kind in zip(EXCHANGES, kinds, strict=True):
            self.declare(name, kind, auto_delete, None)
        for name in QUEUES:
            self.make_queue(name)

    @rule(
        name=st.sampled_from(EXCHANGES),
        kind=st.sampled_from(KINDS),
        auto_delete=st.booleans(),
        alternate=st.sampled_from([None, "", *EXCHANGES]),
    )
    def declare(self, name: str, kind: str, auto_delete: bool, alternate: str | None) -> None:
        if name in self.exchanges:
            return
        arguments = {} if alternate is None else {"alternate-exchange": alternate}
        assert self.host.declare_exchange(name, kind, auto_delete=auto_delete, arguments=arguments)
        self.exchanges[name] = ModelExchange(kind, auto_delete, alternate)

    @rule(name=st.sampled_from(EXCHANGES))
    def delete(self, name: str) -> None:
        removal = self.host.delete_exchange(name)
        gone = [name] if self.exchanges.pop(name, None) else []
        gone += self.drop_target((True, name))
        assert {exchange.name for exchange in removal.exchanges} == set(gone)

    @rule(name=st.sampled_from(QUEUES))
    def make_queue(self, name: str) -> None:
        if name not in self.queues:
            self.host.add_queue(NamedQueue(name))
            self.queues.add(name)

    @rule(name=st.sampled_from(QUEUES))
    def remove_queue(self, name: str) -> None:
        if name in self.queues:
            removal = self.host.remove_queue(name)
            self.queues.remove(name)
            assert {exchange.name for exchange in removal.exchanges} == set(self.drop_target((False, name)))

    @rule(
        source=st.sampled_from(EXCHANGES),
        names=st.lists(st.sampled_from((*EXCHANGES, *QUEUES)), min_size=1, max_size=4),
        key=st.sampled_from(PATTERNS),
        arguments=st.sampled_from(ARGUMENTS),
    )
    def bind(self, source: str, names: list[str], key: str, arguments: dict[str, Any]) -> None:
        for name in names:
            if source not in self.exchanges or not (name in self.exchanges or name in self.queues):
                continue
            target = (name in EXCHANGES, name)
            bind = self.host.bind_exchange if target[0] else self.host.bind_queue
            made = bind(source, name, key, arguments)
            bindings = self.exchanges[source].bindings
            assert (made is None) is ((target, key, arguments) in bindings)
            if made is not None:
                bindings.append((target, key, arguments))

    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        there = [(name, binding) for name, exchange in self.exchanges.items() for binding in exchange.bindings]
        if not there:
            return
        source, binding = data.draw(st.sampled_from(there))
        (to_exchange, name), key, arguments = binding
        unbind = self.host.unbind_exchange if to_exchange else self.host.unbind_queue
        removal = unbind(source, name, key, arguments)
        self.exchanges[source].bindings.remove(binding)
        assert {exchange.name for exchange in removal.exchanges} == set(self.vanish([source]))

    def drop_target(self, target: Target) -> list[str]:
        """Remove the bindings to `target`. Returns the names of the exchanges that vanish as a result."""
        lost = []
        for name, exchange in self.exchanges.items():
            left = [binding for binding in exchange.bindings if binding[0] != target]
            if len(left) != len(exchange.bindings):
                exchange.bindings = left
                lost.append(name)
        return self.vanish(lost)

    def vanish(self, lost_bindings: list[str]) -> list[str]:
        gone = []
        for name in lost_bindings:
            exchange = self.exchanges.get(name)
            if exchange is not None and exchange.auto_delete and not exchange.bindings:
                del self.exchanges[name]
                gone += [name, *self.drop_target((True, name))]
        return gone

    def closure(self, name: str, key: str, headers: Mapping[str, Any] | None) -> list[str]:
        reached, queues, frontier = {name}, set[str](), {name}
        while frontier:
            following = set()
            for each in frontier:
                exchange = self.exchanges.get(each)
                if exchange is None:
                    queues |= {key} & self.queues if each == "" else set()
                    continue
                targets = exchange.matched(key, headers)
                if not targets and exchange.alternate is not None:
                    targets = {(True, exchange.alternate)}
                queues |= {name for is_exchange, name in targets if not is_exchange}
                following |= {name for is_exchange, name in targets if is_exchange}
            frontier = following - reached
            reached |= following
        return sorted(queues)

    @invariant()
    def bindings_are_those_that_were_made(self) -> None:
        there = [
            (b.source.name, (b.to_exchange, b.destination.name), b.routing_key, b.arguments)
            for b in self.host.bindings()
        ]
        expected = [(name, *binding) for name, exchange in self.exchanges.items() for binding in exchange.bindings]
        assert sorted(there, key=repr) == sorted(expected, key=repr)

    @invariant()
    def routes_are_the_closure(self) -> None:
        assert self.host.exchanges.keys() - self.exchanges.keys() == VirtualHost("/").exchanges.keys()
        for name in ("", *self.exchanges):
            needs_headers = self.host.needs_headers(name)
            for key in KEYS:
                for headers in HEADERS:
                    found = self.host.route(name, key, headers)
                    assert sorted(queue.name for queue in found) == self.closure(name, key, headers)
                    assert all(queue is self.host.queues[queue.name] for queue in found)
                    if not needs_headers:
                        assert self.host.route(name, key) == found


class TopologyInPieces(Topology):
    """The bindings of deleted queues and exchanges are removed one by one, with other changes in between."""

    def __init__(self) -> None:
        super().__init__()
        self.host.unbinding.most = 1
        self.unbound: set[str] = set()  # exchanges that have lost a binding, and are deleted without bindings

    @rule(name=st.sampled_from(EXCHANGES))
    def delete(self, name: str) -> None:
        self.host.delete_exchange(name)
        if self.exchanges.pop(name, None):
            self.drop_target((True, name))
        self.follow()

    @rule(name=st.sampled_from(QUEUES))
    def remove_queue(self, name: str) -> None:
        if name in self.queues:
            self.host.remove_queue(name)
            self.queues.remove(name)
            self.drop_target((False, name))
            self.follow()

    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        there = [(name, binding) for name, exchange in self.exchanges.items() for binding in exchange.bindings]
        if there:
            source, binding = data.draw(st.sampled_from(there))
            (to_exchange, name), key, arguments = binding
            unbind = self.host.unbind_exchange if to_exchange else self.host.unbind_queue
            assert unbind(source, name, key, arguments).bindings
            self.exchanges[source].bindings.remove(binding)
            self.unbound.add(source)
            self.follow()

    @rule(source=st.sampled_from(EXCHANGES), name=st.sampled_from((*EXCHANGES, *QUEUES)))
    def unbind_again(self, source: str, name: str) -> None:
        exchange = self.exchanges.get(source)
        target = (name in EXCHANGES, name)
        if exchange is not None and (target, "a", {}) not in exchange.bindings:
            unbind = self.host.unbind_exchange if target[0] else self.host.unbind_queue
            assert not unbind(source, name, "a", {})
            assert not self.host.is_bound(source, name, "a", {}, to_exchange=target[0])

    @rule(pieces=st.integers(1, 20))
    def go_on(self, pieces: int) -> None:
        for _ in range(pieces):
            self.host.unbinding.piece()
            self.follow()
        if not self.host.unbinding:
            left = [name for name in self.unbound & self.exchanges.keys() if not self.exchanges[name].bindings]
            assert not [name for name in left if self.exchanges[name].auto_delete]
            self.unbound.clear()

    def vanish(self, lost_bindings: list[str]) -> list[str]:
        self.unbound.update(lost_bindings)
        return []

    def follow(self) -> None:
        """Delete what the host has deleted automatically, which it may do only with exchanges without bindings."""
        for name in self.exchanges.keys() - self.host.exchanges.keys():
            exchange = self.exchanges.pop(name)
            assert exchange.auto_delete
            assert not exchange.bindings
            self.drop_target((True, name))


TestTopology = Topology.TestCase
TestTopologyInPieces = TopologyInPieces.TestCase
TestTopology.settings = settings(max_examples=max(100, settings().max_examples), stateful_step_count=40)
TestTopologyInPieces.settings = TestTopology.settings
