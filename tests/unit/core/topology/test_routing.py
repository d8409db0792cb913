"""Routes through exchanges, and their cache."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from types import FrameType

import pytest

from escrowmq.core.budget import STEPS
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.exchange import Exchange
from escrowmq.core.topology.exchanges.fanout import FanoutExchange
from escrowmq.core.topology.routing import Router
from escrowmq.core.topology.vhost import VirtualHost
from tests.unit.core.named_queue import NamedQueue


@pytest.fixture
def vhost() -> VirtualHost[NamedQueue]:
    host: VirtualHost[NamedQueue] = VirtualHost("/")
    for name in ("q", "p"):
        host.add_queue(NamedQueue(name))
    return host


def names(queues: tuple[NamedQueue, ...]) -> list[str]:
    return [queue.name for queue in queues]


def test_the_default_exchange_routes_by_queue_name(vhost: VirtualHost[NamedQueue]) -> None:
    assert vhost.route("", "q") == (vhost.queues["q"],)
    assert vhost.route("", "nobody") == ()


def test_each_queue_is_returned_once_in_the_order_of_the_bindings(vhost: VirtualHost[NamedQueue]) -> None:
    for queue in ("q", "p"):
        for pattern in ("#", "a.*", "*.b"):
            vhost.bind_queue("amq.topic", queue, pattern)
    assert names(vhost.route("amq.topic", "a.b")) == ["q", "p"]


@pytest.mark.rule("FAIR-1")
def test_queues_that_are_found_are_not_sorted() -> None:
    compared: list[str] = []

    class Name(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            compared.append(other)
            return super().__lt__(other)

    vhost: VirtualHost[NamedQueue] = VirtualHost("/")
    for number in range(300, 0, -1):
        vhost.add_queue(NamedQueue(f"q{number}"))
        vhost.bind_queue("amq.fanout", f"q{number}", "")
        vhost.bind_queue("amq.topic", f"q{number}", "#")
        vhost.queues[f"q{number}"].name = Name(f"q{number}")
    for exchange in ("amq.fanout", "amq.topic"):
        assert len(vhost.route(exchange, "key")) == 300
        assert len(vhost.route_each(exchange, [(1, "other")])[1]) == 300
    assert not compared


def test_several_keys_are_routed(vhost: VirtualHost[NamedQueue]) -> None:
    vhost.bind_queue("amq.direct", "q", "one")
    vhost.bind_queue("amq.direct", "p", "two")
    assert names(vhost.route("amq.direct", "one", None, ["two", "three"])) == ["q", "p"]
    assert names(vhost.route("amq.direct", "one")) == ["q"]
    assert names(vhost.route("", "p", None, ("p", "q"))) == ["p", "q"]


@pytest.mark.parametrize("indirect", [False, True])
def test_routes_of_many_keys_are_those_of_each(vhost: VirtualHost[NamedQueue], indirect: bool) -> None:
    for queue, pattern in (("q", "#"), ("p", "a.*"), ("p", "*.b")):
        vhost.bind_queue("amq.topic", queue, pattern)
    if indirect:
        vhost.bind_exchange("amq.fanout", "amq.topic", "a.#")
        vhost.bind_queue("amq.fanout", "p", "")
    keys = ["a.b", "a.c", "c", "", "a.b.c"]
    found = vhost.route_each("amq.topic", [(key.encode(), key) for key in keys])
    assert found == {key.encode(): vhost.route("amq.topic", key) for key in keys}
    assert vhost.route_each("amq.direct", [(0, "a")]) == {0: ()}


def test_a_missing_exchange_is_refused(vhost: VirtualHost[NamedQueue]) -> None:
    keys: list[tuple[int, str]] = []
    for ask in (
        lambda: vhost.route("x", "k"),
        lambda: vhost.route_each("x", keys),
        lambda: vhost.needs_headers("x"),
        lambda: vhost.needs_content("x"),
    ):
        with pytest.raises(BrokerError) as refused:
            ask()
        assert (refused.value.condition, refused.value.text) == (Condition.NOT_FOUND, "no exchange 'x' in vhost '/'")


def test_routes_lead_through_exchanges_and_cycles(vhost: VirtualHost[NamedQueue]) -> None:
    vhost.bind_exchange("amq.direct", "amq.fanout", "k")
    vhost.bind_exchange("amq.fanout", "amq.topic", "")
    vhost.bind_exchange("amq.topic", "amq.direct", "#")
    vhost.bind_exchange("amq.topic", "amq.topic", "#")
    vhost.bind_queue("amq.topic", "q", "k")
    assert names(vhost.route("amq.direct", "k")) == ["q"]
    assert names(vhost.route("amq.topic", "x")) == []


class TestAlternateExchange:
    @pytest.fixture(autouse=True)
    def declare(self, vhost: VirtualHost[NamedQueue]) -> None:
        vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "y"})
        vhost.declare_exchange("y", "direct", arguments={"alternate-exchange": "z"})
        vhost.declare_exchange("z", "fanout", arguments={"alternate-exchange": "x"})

    def test_the_alternate_gets_unrouted_messages(self, vhost: VirtualHost[NamedQueue]) -> None:
        vhost.bind_queue("x", "q", "k")
        vhost.bind_queue("y", "p", "l")
        assert [names(vhost.route("x", key)) for key in "klm"] == [["q"], ["p"], []]

    def test_alternates_form_chains(self, vhost: VirtualHost[NamedQueue]) -> None:
        vhost.bind_queue("z", "p", "")
        assert names(vhost.route("x", "k")) == ["p"]

    def test_the_alternate_is_not_used_if_one_of_several_keys_was_routed(self, vhost: VirtualHost[NamedQueue]) -> None:
        vhost.bind_queue("x", "q", "k")
        vhost.bind_queue("y", "p", "l")
        assert names(vhost.route("x", "l", None, ["k"])) == ["q"]

    def test_the_alternate_is_not_used_if_a_destination_exchange_routed_nowhere(
        self, vhost: VirtualHost[NamedQueue]
    ) -> None:
        vhost.bind_queue("y", "p", "k")
        vhost.bind_exchange("x", "amq.direct", "k")
        assert vhost.route("x", "k") == ()

    def test_the_alternate_may_be_missing(self, vhost: VirtualHost[NamedQueue]) -> None:
        vhost.delete_exchange("y")
        assert vhost.route("x", "k") == ()
        vhost.declare_exchange("y", "fanout")
        vhost.bind_queue("y", "p", "")
        assert names(vhost.route("x", "k")) == ["p"]

    def test_the_alternate_may_be_the_default_exchange(self, vhost: VirtualHost[NamedQueue]) -> None:
        vhost.declare_exchange("w", "direct", arguments={"alternate-exchange": ""})
        assert vhost.route("w", "new") == ()
        vhost.add_queue(NamedQueue("new"))
        assert names(vhost.route("w", "new")) == ["new"]
        vhost.remove_queue("new")
        assert vhost.route("w", "new") == ()


def test_headers_matter_at_any_exchange_of_the_route(vhost: VirtualHost[NamedQueue]) -> None:
    vhost.bind_exchange("amq.direct", "amq.headers", "k")
    assert not vhost.needs_headers("amq.direct")
    assert vhost.route("amq.direct", "k", {"a": 1}) == ()
    vhost.bind_queue("amq.headers", "q", "", {"a": 1})
    assert vhost.needs_headers("amq.direct")
    assert [names(vhost.route("amq.direct", "k", {"a": value})) for value in (1, 2, 1)] == [["q"], [], ["q"]]
    assert not vhost.needs_headers("amq.topic")
    vhost.declare_exchange("x", "fanout", arguments={"alternate-exchange": "amq.direct"})
    assert vhost.needs_headers("x")
    vhost.unbind_queue("amq.headers", "q", "", {"a": 1})
    assert not vhost.needs_headers("x")


class TestMemory:
    def test_a_route_is_cached(self, vhost: VirtualHost[NamedQueue]) -> None:
        vhost.bind_queue("amq.topic", "q", "#")
        assert vhost.route("amq.topic", "a") is vhost.route("amq.topic", "a")

    def test_every_change_of_topology_is_effective(self, vhost: VirtualHost[NamedQueue]) -> None:
        seen = []
        versions = {vhost.version}

        def look() -> None:
            seen.append(names(vhost.route("amq.fanout", "k")))
            versions.add(vhost.version)

        look()
        vhost.bind_queue("amq.fanout", "q", "")
        look()
        vhost.declare_exchange("x", "direct")
        vhost.bind_exchange("amq.fanout", "x", "")
        vhost.bind_queue("x", "p", "k")
        look()
        vhost.delete_exchange("x")
        look()
        vhost.unbind_queue("amq.fanout", "q", "")
        look()
        assert seen == [[], ["q"], ["q", "p"], ["q"], []]
        assert len(versions) == len(seen)

    def test_a_new_queue_of_the_same_name_replaces_the_cached_one(self, vhost: VirtualHost[NamedQueue]) -> None:
        old = vhost.route("", "q")
        vhost.remove_queue("q")
        assert vhost.route("", "q") == ()
        again = NamedQueue("q")
        vhost.add_queue(again)
        assert vhost.route("", "q") == (again,) != old

    def test_queues_without_bindings_do_not_invalidate_other_routes(self, vhost: VirtualHost[NamedQueue]) -> None:
        vhost.bind_queue("amq.direct", "q", "k")
        routes = vhost.route("amq.direct", "k"), vhost.route("", "p")
        vhost.add_queue(NamedQueue("reply"))
        vhost.route("", "reply")
        vhost.remove_queue("reply")
        assert vhost.route("amq.direct", "k") is routes[0]
        assert vhost.route("", "p") is routes[1]

    def test_the_cache_is_bounded(self) -> None:
        queues = {name: NamedQueue(name) for name in "ab"}
        calls: list[str] = []

        class Counting(Exchange[NamedQueue]):
            kind = "counting"

            def match(self, routing_key: str, headers: object) -> list[NamedQueue | Exchange[NamedQueue]]:
                calls.append(routing_key)
                return [queues["a"]]

            def _index(self, binding: object) -> None: ...

            def _unindex(self, binding: object) -> None: ...

        router = Router("/", {"x": Counting("x")}, {}, cache_limit=3)
        for key in "112233":
            router.route("x", key)
        assert calls == list("123")
        router.route("x", "4")
        router.route("x", "4")
        router.route("x", "1")
        assert calls == list("12341")


@pytest.mark.rule("FAIR-1")
def test_exchanges_that_read_no_key_are_walked_once_for_all_keys(
    vhost: VirtualHost[NamedQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        vhost.declare_exchange(name, "fanout")
    for source in ("one", "two", "three"):
        for destination in ("one", "two", "three"):
            vhost.bind_exchange(source, destination, "")
    vhost.bind_queue("three", "q", "")
    walked: list[str] = []
    match = FanoutExchange.match

    def counted(self: FanoutExchange[NamedQueue], key: str, headers: Mapping[str, object] | None) -> object:
        walked.append(self.name)
        return match(self, key, headers)

    monkeypatch.setattr(FanoutExchange, "match", counted)
    for i in range(100):
        assert names(vhost.route("one", f"key {i}")) == ["q"]
    assert len(walked) == 3
    vhost.bind_queue("three", "p", "")
    assert names(vhost.route("one", "key")) == ["q", "p"]


def test_a_route_that_ends_in_a_direct_exchange_is_of_its_key(vhost: VirtualHost[NamedQueue]) -> None:
    vhost.declare_exchange("one", "fanout")
    vhost.bind_exchange("one", "amq.direct", "")
    vhost.bind_queue("amq.direct", "q", "k")
    assert names(vhost.route("one", "other")) == []
    assert names(vhost.route("one", "k")) == ["q"]


@pytest.mark.rule("FAIR-1")
def test_bindings_between_exchanges_cost_no_step_each(vhost: VirtualHost[NamedQueue]) -> None:
    """The first route after a change of the topology must not make other clients wait."""
    count = 60
    for number in range(count):
        vhost.declare_exchange(f"e{number}", "fanout")
    for one, other in itertools.product(range(count), repeat=2):
        vhost.bind_exchange(f"e{one}", f"e{other}", "")
    vhost.bind_queue("e7", "q", "")
    calls = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(called)
    try:
        found = vhost.needs_content("e0"), vhost.route("e0", "k"), len(vhost.reached("e0", ["k"]))
    finally:
        sys.setprofile(None)
    assert found == (False, (vhost.queues["q"],), count)
    assert calls < count**2, "a step for each binding"


def test_a_walk_follows_destinations_until_their_last_binding_is_gone(vhost: VirtualHost[NamedQueue]) -> None:
    vhost.bind_exchange("amq.fanout", "amq.direct", "a")
    vhost.bind_exchange("amq.fanout", "amq.direct", "b")
    vhost.bind_queue("amq.direct", "q", "k")
    for key, left in (("a", ["q"]), ("b", [])):
        vhost.unbind_exchange("amq.fanout", "amq.direct", key)
        assert names(vhost.route("amq.fanout", "k")) == left
    assert not vhost.exchanges["amq.fanout"].destinations
    assert not vhost.exchanges["amq.fanout"].following


@pytest.mark.rule("FAIR-1")
def test_bindings_that_are_compared_and_do_not_match_are_charged(vhost: VirtualHost[NamedQueue]) -> None:
    for i, j in itertools.product(range(20), repeat=2):
        vhost.bind_queue("amq.headers", "q", "", {"x": i, "y": j})
    vhost.take_cost()
    for i in range(20):
        assert vhost.route("amq.headers", "", {"x": i, "y": 20}) == ()
        assert vhost.route("amq.headers", "", {"x": 20, "y": i}) == ()
    # One for each exchange and each header that some binding names, and one for each binding, kept under either header.
    assert vhost.take_cost() == (40 + 40 + 400) // STEPS
    assert vhost.take_cost() == 0


@pytest.mark.rule("FAIR-1")
def test_every_walk_over_exchanges_is_charged(vhost: VirtualHost[NamedQueue]) -> None:
    count = 20
    for number in range(count):
        vhost.declare_exchange(f"e{number}", "topic")
    for one, other in itertools.product(range(count), repeat=2):
        vhost.bind_exchange(f"e{one}", f"e{other}", "#")
    for walk in (
        lambda: vhost.needs_content("e0"),
        lambda: vhost.route("e0", "k"),
        lambda: vhost.reached("e0", ["k"]),
    ):
        vhost.take_cost()
        walk()
        assert vhost.take_cost() >= count**2 // STEPS, walk


def test_leading_words_are_known_of_exchanges_that_lead_to_queues_only(vhost: VirtualHost[NamedQueue]) -> None:
    vhost.bind_queue("amq.topic", "q", "a.#")
    assert [vhost.leading_words(name) for name in ("amq.topic", "amq.fanout", "amq.direct", "")] == [1, 0, None, None]
    vhost.bind_exchange("amq.topic", "amq.direct", "#")
    assert vhost.leading_words("amq.topic") is None
    vhost.declare_exchange("x", "fanout", arguments={"alternate-exchange": "amq.direct"})
    assert vhost.leading_words("x") is None
