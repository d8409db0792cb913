"""Virtual hosts: declaring, binding and removing. The error texts are those of RabbitMQ 3.10.8."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.unbinding import Removal
from escrowmq.core.topology.vhost import VirtualHost
from tests.unit.core.named_queue import NamedQueue

Host = VirtualHost[NamedQueue]
DEFAULT = "operation not permitted on the default exchange"


@pytest.fixture
def vhost() -> Host:
    host = Host("/")
    host.add_queue(NamedQueue("q"))
    host.declare_exchange("x", "direct")
    return host


def refusal(do: Callable[[], object]) -> tuple[Condition, str]:
    with pytest.raises(BrokerError) as refused:
        do()
    return refused.value.condition, refused.value.text


def shape(removal: Removal[NamedQueue]) -> tuple[list[tuple[str, str]], list[str]]:
    bindings = [(binding.source.name, binding.destination.name) for binding in removal.bindings]
    return bindings, [exchange.name for exchange in removal.exchanges]


def everything(host: Host) -> tuple[list[str], list[str], list[tuple[str, bool, str, str]]]:
    bindings = [(b.source.name, b.to_exchange, b.destination.name, b.routing_key) for b in host.bindings()]
    return sorted(host.exchanges), sorted(host.queues), sorted(bindings)


def test_predeclared_exchanges_exist() -> None:
    host = Host("/")
    assert {name: (exchange.kind, exchange.durable) for name, exchange in host.exchanges.items()} == {
        "": ("direct", True),
        "amq.direct": ("direct", True),
        "amq.fanout": ("fanout", True),
        "amq.topic": ("topic", True),
        "amq.headers": ("headers", True),
        "amq.match": ("headers", True),
    }
    assert not host.queues


class TestDeclareExchange:
    def test_an_exchange_is_created_once(self, vhost: Host) -> None:
        made = vhost.declare_exchange("y", "topic", durable=True, auto_delete=True, internal=True, arguments={"a": 1})
        assert made is vhost.exchanges["y"]
        assert (made.kind, made.durable, made.auto_delete, made.internal, made.arguments) == (
            "topic",
            True,
            True,
            True,
            {"a": 1},
        )
        assert vhost.declare_exchange("y", "topic", durable=True, auto_delete=True, internal=True) is None
        assert vhost.exchanges["y"] is made

    def test_declaring_again_requires_the_same_attributes(self, vhost: Host) -> None:
        assert refusal(lambda: vhost.declare_exchange("x", "direct", durable=True)) == (
            Condition.PRECONDITION_FAILED,
            "inequivalent arg 'durable' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        )

    def test_passive_checks_only_the_name(self, vhost: Host) -> None:
        assert vhost.declare_exchange("x", "nonsense", durable=True, passive=True) is None
        assert refusal(lambda: vhost.declare_exchange("amq.x", "direct", passive=True)) == (
            Condition.NOT_FOUND,
            "no exchange 'amq.x' in vhost '/'",
        )

    def test_unknown_types_are_refused(self, vhost: Host) -> None:
        unknown = Condition.ILLEGAL_STATE, "unknown exchange type 'nope'"
        assert refusal(lambda: vhost.declare_exchange("y", "nope")) == unknown
        assert refusal(lambda: vhost.declare_exchange("x", "nope")) == unknown
        assert refusal(lambda: vhost.declare_exchange("y", "")) == (
            Condition.ILLEGAL_STATE,
            "invalid exchange type ''",
        )

    def test_reserved_names_are_refused(self, vhost: Host) -> None:
        assert refusal(lambda: vhost.declare_exchange("amq.x", "direct")) == (
            Condition.ACCESS_REFUSED,
            "exchange name 'amq.x' contains reserved prefix 'amq.*'",
        )
        assert refusal(lambda: vhost.declare_exchange("", "direct", durable=True)) == (
            Condition.ACCESS_REFUSED,
            DEFAULT,
        )
        assert refusal(lambda: vhost.declare_exchange("", "direct", passive=True))[1] == DEFAULT
        assert vhost.declare_exchange("amq.direct", "direct", durable=True) is None
        assert vhost.declare_exchange("amqx", "direct") is not None

    def test_an_alternate_exchange_must_be_a_name(self, vhost: Host) -> None:
        assert refusal(lambda: vhost.declare_exchange("y", "direct", arguments={"alternate-exchange": True})) == (
            Condition.PRECONDITION_FAILED,
            "invalid type 'bool' for arg 'alternate-exchange' in exchange 'y' in vhost '/'",
        )
        assert "y" not in vhost.exchanges


class TestDeleteExchange:
    def test_an_exchange_is_deleted_with_all_its_bindings(self, vhost: Host) -> None:
        vhost.bind_queue("x", "q", "k")
        vhost.bind_exchange("amq.topic", "x", "#")
        vhost.bind_exchange("x", "x", "loop")
        removal = vhost.delete_exchange("x")
        assert shape(removal) == ([("x", "x"), ("x", "q"), ("amq.topic", "x")], ["x"])
        assert everything(vhost) == everything_of_new_with_q()
        assert not vhost.bindings_to("q", to_exchange=False)

    def test_what_is_not_there(self, vhost: Host) -> None:
        removal = vhost.delete_exchange("y", if_unused=True)
        assert not removal

    def test_deletion_can_require_an_unused_exchange(self, vhost: Host) -> None:
        vhost.bind_exchange("x", "amq.topic", "k")
        assert refusal(lambda: vhost.delete_exchange("x", if_unused=True)) == (
            Condition.PRECONDITION_FAILED,
            "exchange 'x' in vhost '/' in use",
        )
        vhost.unbind_exchange("x", "amq.topic", "k")
        vhost.bind_exchange("amq.topic", "x", "k")
        assert shape(vhost.delete_exchange("x", if_unused=True)) == ([("amq.topic", "x")], ["x"])

    @pytest.mark.parametrize("name", ["amq.direct", "amq.zzz"])
    def test_predeclared_exchanges_cannot_be_deleted(self, vhost: Host, name: str) -> None:
        assert refusal(lambda: vhost.delete_exchange(name)) == (
            Condition.ACCESS_REFUSED,
            f"deletion of system exchange '{name}' in vhost '/' not allowed",
        )

    def test_the_default_exchange(self, vhost: Host) -> None:
        assert refusal(lambda: vhost.delete_exchange("")) == (Condition.ACCESS_REFUSED, DEFAULT)


def everything_of_new_with_q() -> tuple[list[str], list[str], list[tuple[str, bool, str, str]]]:
    host = Host("/")
    host.add_queue(NamedQueue("q"))
    return everything(host)


class TestBind:
    def test_a_binding_is_created_once(self, vhost: Host) -> None:
        binding = vhost.bind_queue("x", "q", "k", {"a": 1})
        assert binding is not None
        assert (binding.source, binding.destination) == (vhost.exchanges["x"], vhost.queues["q"])
        assert vhost.bind_queue("x", "q", "k", {"a": 1}) is None
        assert vhost.bindings_to("q", to_exchange=False) == [binding] == list(vhost.bindings())

    def test_queue_and_exchange_of_one_name_are_two_destinations(self, vhost: Host) -> None:
        vhost.declare_exchange("q", "fanout")
        assert vhost.bind_queue("x", "q", "k")
        assert vhost.bind_exchange("x", "q", "k")
        assert shape(vhost.unbind_exchange("x", "q", "k")) == ([("x", "q")], [])
        assert [queue.name for queue in vhost.route("x", "k")] == ["q"]

    @pytest.mark.parametrize(
        ("bind", "text"),
        [
            (lambda host: host.bind_queue("y", "q", ""), "no exchange 'y' in vhost '/'"),
            (lambda host: host.bind_queue("x", "p", ""), "no queue 'p' in vhost '/'"),
            (lambda host: host.bind_queue("y", "p", ""), "no exchange 'y' in vhost '/'"),
            (lambda host: host.bind_exchange("y", "x", ""), "no exchange 'y' in vhost '/'"),
            (lambda host: host.bind_exchange("x", "y", ""), "no exchange 'y' in vhost '/'"),
            (lambda host: host.bind_exchange("y", "z", ""), "no exchange 'y' in vhost '/'"),
        ],
    )
    def test_what_is_not_there(self, vhost: Host, bind: Callable[[Host], object], text: str) -> None:
        assert refusal(lambda: bind(vhost)) == (Condition.NOT_FOUND, text)

    @pytest.mark.parametrize(
        "do",
        [
            lambda host: host.bind_queue("", "nobody", "k"),
            lambda host: host.unbind_queue("", "q", "q"),
            lambda host: host.bind_exchange("", "x", "k"),
            lambda host: host.bind_exchange("x", "", "k"),
            lambda host: host.unbind_exchange("", "x", "k"),
            lambda host: host.unbind_exchange("x", "", "k"),
        ],
    )
    def test_the_default_exchange(self, vhost: Host, do: Callable[[Host], object]) -> None:
        assert refusal(lambda: do(vhost)) == (Condition.ACCESS_REFUSED, DEFAULT)

    def test_arguments_that_the_exchange_refuses_leave_nothing_behind(self, vhost: Host) -> None:
        assert refusal(lambda: vhost.bind_queue("amq.headers", "q", "", {"x-match": "some"}))[0] is (
            Condition.PRECONDITION_FAILED
        )
        assert not vhost.bindings_to("q", to_exchange=False)
        assert not vhost.remove_queue("q")


class TestUnbind:
    @pytest.mark.parametrize(
        "unbind",
        [
            lambda host: host.unbind_queue("x", "q", "other"),
            lambda host: host.unbind_queue("x", "q", "k", {"a": 1}),
            lambda host: host.unbind_queue("x", "p", "k"),
            lambda host: host.unbind_queue("y", "q", "k"),
            lambda host: host.unbind_exchange("x", "q", "k"),
            lambda host: host.unbind_exchange("x", "y", "k"),
        ],
    )
    def test_what_is_not_there(self, vhost: Host, unbind: Callable[[Host], Removal[NamedQueue]]) -> None:
        vhost.bind_queue("x", "q", "k")
        before = everything(vhost)
        assert not unbind(vhost)
        assert everything(vhost) == before

    def test_bindings_to_an_exchange_are_not_those_to_a_queue_of_its_name(self, vhost: Host) -> None:
        binding = vhost.bind_exchange("amq.topic", "x", "#")
        assert vhost.bindings_to("x", to_exchange=True) == [binding]
        assert not vhost.bindings_to("x", to_exchange=False)

    def test_an_existing_binding_is_removed(self, vhost: Host) -> None:
        binding = vhost.bind_queue("x", "q", "k")
        assert vhost.unbind_queue("x", "q", "k").bindings == (binding,)
        assert not vhost.bindings_to("q", to_exchange=False)


class TestAutoDelete:
    @pytest.fixture(autouse=True)
    def declare(self, vhost: Host) -> None:
        for name in ("a", "b", "c"):
            vhost.declare_exchange(name, "fanout", auto_delete=True)

    def test_the_exchange_is_deleted_after_its_last_binding(self, vhost: Host) -> None:
        vhost.bind_queue("a", "q", "1")
        vhost.bind_queue("a", "q", "2")
        assert shape(vhost.unbind_queue("a", "q", "1")) == ([("a", "q")], [])
        assert shape(vhost.unbind_queue("a", "q", "2")) == ([("a", "q")], ["a"])
        assert "a" not in vhost.exchanges

    def test_an_exchange_that_was_never_bound_stays(self, vhost: Host) -> None:
        vhost.remove_queue("q")
        vhost.bind_exchange("x", "a", "")
        vhost.unbind_exchange("x", "a", "")
        assert {"a", "b", "c"} <= vhost.exchanges.keys()

    def test_deletions_cascade(self, vhost: Host) -> None:
        vhost.bind_exchange("a", "b", "")
        vhost.bind_exchange("b", "c", "")
        vhost.bind_queue("c", "q", "")
        vhost.bind_exchange("x", "b", "k")
        assert shape(vhost.remove_queue("q")) == ([("c", "q"), ("b", "c"), ("x", "b"), ("a", "b")], ["c", "b", "a"])
        assert not list(vhost.bindings())
        assert "x" in vhost.exchanges

    def test_cascades_in_a_cycle_end(self, vhost: Host) -> None:
        vhost.bind_exchange("a", "b", "")
        vhost.bind_exchange("b", "a", "")
        vhost.bind_exchange("a", "a", "")
        assert shape(vhost.delete_exchange("b")) == ([("b", "a"), ("a", "b")], ["b"])
        assert shape(vhost.unbind_exchange("a", "a", "")) == ([("a", "a")], ["a"])

    def test_deleting_an_exchange_cascades_to_its_sources(self, vhost: Host) -> None:
        vhost.bind_exchange("a", "b", "")
        vhost.bind_exchange("b", "c", "")
        assert shape(vhost.delete_exchange("c")) == ([("b", "c"), ("a", "b")], ["c", "b", "a"])


class TestQueues:
    def test_reserved_queue_names_are_refused(self, vhost: Host) -> None:
        vhost.check_queue_name("amqx")
        assert refusal(lambda: vhost.check_queue_name("amq.q")) == (
            Condition.ACCESS_REFUSED,
            "queue name 'amq.q' contains reserved prefix 'amq.*'",
        )

    def test_a_queue_is_found_by_name(self, vhost: Host) -> None:
        assert vhost.queue("q").name == "q"
        missing = Condition.NOT_FOUND, "no queue 'p' in vhost '/'"
        assert refusal(lambda: vhost.queue("p")) == missing
        assert refusal(lambda: vhost.remove_queue("p")) == missing

    def test_the_names_of_queues_are_in_order_after_each_change(self, vhost: Host) -> None:
        for name in ("z", "a", "m"):
            vhost.add_queue(NamedQueue(name))
            assert vhost.names_behind("", 9) == sorted(vhost.queues)
        vhost.remove_queue("m")
        vhost.add_queue(NamedQueue("n"))
        assert vhost.names_behind("", 9) == ["a", "n", "q", "z"]
        assert vhost.names_behind("b", 2) == ["n", "q"]

    def test_a_queue_is_removed_with_its_bindings(self, vhost: Host) -> None:
        vhost.add_queue(NamedQueue("p"))
        for queue in ("q", "p"):
            for source in ("x", "amq.topic"):
                vhost.bind_queue(source, queue, "k")
        assert shape(vhost.remove_queue("q")) == ([("amq.topic", "q"), ("x", "q")], [])
        assert [queue.name for queue in vhost.route("x", "k")] == ["p"]


def test_publishing_to_internal_or_missing_exchanges_is_refused(vhost: Host) -> None:
    vhost.declare_exchange("i", "direct", internal=True)
    assert vhost.exchange_for_publish("") is vhost.exchanges[""]
    assert refusal(lambda: vhost.exchange_for_publish("i")) == (
        Condition.ACCESS_REFUSED,
        "cannot publish to internal exchange 'i' in vhost '/'",
    )
    assert refusal(lambda: vhost.exchange_for_publish("y")) == (Condition.NOT_FOUND, "no exchange 'y' in vhost '/'")


class TestRestoring:
    def test_nothing_is_deleted_automatically(self, vhost: Host) -> None:
        vhost.restoring = True
        vhost.declare_exchange("a", "fanout", auto_delete=True)
        vhost.bind_queue("a", "q", "")
        assert shape(vhost.unbind_queue("a", "q", "")) == ([("a", "q")], [])
        vhost.bind_queue("a", "q", "")
        assert shape(vhost.remove_queue("q")) == ([("a", "q")], [])
        assert shape(vhost.delete_exchange("a")) == ([], ["a"])

    def test_bindings_are_admitted_beyond_the_limits_of_new_ones(self, vhost: Host) -> None:
        """A journal of an older version may have them."""
        arguments = {f"h{i}": i for i in range(33)}
        vhost.restoring = False
        with pytest.raises(BrokerError, match="names 33 headers; the limit is 32"):
            vhost.bind_queue("amq.headers", "q", "", arguments)
        vhost.restoring = True
        assert vhost.bind_queue("amq.headers", "q", "", arguments)
        vhost.restoring = False
        assert vhost.bind_queue("amq.headers", "q", "", arguments) is None

    def test_reserved_names_are_allowed(self, vhost: Host) -> None:
        vhost.restoring = True
        vhost.check_queue_name("amq.gen-1")
        assert vhost.declare_exchange("amq.mine", "direct") is not None
        assert shape(vhost.delete_exchange("amq.mine")) == ([], ["amq.mine"])
