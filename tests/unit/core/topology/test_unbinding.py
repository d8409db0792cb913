"""The bindings of deleted queues and exchanges are removed in pieces, and route nothing meanwhile."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError
from escrowmq.core.topology.unbinding import PIECE
from escrowmq.core.topology.vhost import VirtualHost
from tests.unit.core.named_queue import NamedQueue

Host = VirtualHost[NamedQueue]
BINDINGS = 3 * PIECE


@pytest.fixture
def vhost() -> Host:
    host: Host = VirtualHost("/")
    host.add_queue(NamedQueue("q"))
    host.add_queue(NamedQueue("other"))
    host.declare_exchange("x", "topic")
    for number in range(BINDINGS):
        host.bind_queue("x", "q", f"{number}")
    host.bind_queue("x", "other", "0")
    return host


def rest(host: Host) -> list[int]:
    """Remove the rest of the bindings. Return their number in each piece."""
    sizes = []
    while host.unbinding:
        sizes.append(len(host.unbinding.piece().bindings))
    return sizes


def names(host: Host, key: str = "0") -> list[str]:
    return [queue.name for queue in host.route("x", key)]


@pytest.mark.rule("FAIR-1")
class TestPieces:
    def test_each_piece_of_a_deleted_queue_has_few_bindings(self, vhost: Host) -> None:
        assert len(vhost.remove_queue("q").bindings) == PIECE
        sizes = rest(vhost)
        assert max(sizes) <= PIECE
        assert sum(sizes) == BINDINGS - PIECE
        assert len(vhost.exchanges["x"].bindings) == 1
        assert not vhost.unbinding.gone

    def test_each_piece_of_a_deleted_exchange_has_few_bindings(self, vhost: Host) -> None:
        vhost.bind_exchange("amq.direct", "x", "k")
        exchange = vhost.exchanges["x"]
        assert len(vhost.delete_exchange("x").bindings) == PIECE
        assert "x" not in vhost.exchanges
        assert not vhost.bindings_to("q", to_exchange=False)
        assert max(rest(vhost)) <= PIECE
        assert not exchange.bindings
        assert not vhost.exchanges["amq.direct"].bindings

    def test_each_piece_deletes_few_exchanges_automatically(self, vhost: Host) -> None:
        for number in range(BINDINGS):
            vhost.declare_exchange(f"auto {number}", "fanout", auto_delete=True)
            vhost.bind_queue(f"auto {number}", "other", "")
        deleted = [len(vhost.remove_queue("other").exchanges)]
        while vhost.unbinding:
            deleted.append(len(vhost.unbinding.piece().exchanges))
        assert max(deleted) <= PIECE
        assert sum(deleted) == BINDINGS

    def test_all_of_it_is_removed_at_once_at_a_start(self, vhost: Host) -> None:
        vhost.restoring = True
        assert len(vhost.remove_queue("q").bindings) == BINDINGS
        assert not vhost.unbinding


class TestMeanwhile:
    @pytest.fixture(autouse=True)
    def delete(self, vhost: Host) -> None:
        vhost.remove_queue("q")
        assert vhost.unbinding

    def test_nothing_is_routed_to_a_deleted_queue(self, vhost: Host) -> None:
        assert names(vhost) == ["other"]
        assert not vhost.route("x", "1")

    def test_an_alternate_exchange_gets_the_messages_that_only_the_deleted_queue_got(self, vhost: Host) -> None:
        vhost.declare_exchange("y", "direct", arguments={"alternate-exchange": "amq.fanout"})
        vhost.add_queue(NamedQueue("p"))
        for number in range(BINDINGS):
            vhost.bind_queue("y", "p", f"{number}")
        vhost.bind_queue("amq.fanout", "other", "")
        vhost.remove_queue("p")
        assert [queue.name for queue in vhost.route("y", "0")] == ["other"]

    def test_its_bindings_are_in_no_list(self, vhost: Host) -> None:
        assert [binding.destination.name for binding in vhost.bindings()] == ["other"]
        assert not vhost.bindings_to("q", to_exchange=False)
        assert not vhost.is_bound("x", "q", "0", {}, to_exchange=False)
        assert not vhost.unbind_queue("x", "q", "0")

    def test_a_new_queue_of_that_name_has_only_its_own_bindings(self, vhost: Host) -> None:
        vhost.add_queue(NamedQueue("q"))
        assert names(vhost) == ["other"]
        binding = vhost.bind_queue("x", "q", "0")
        assert names(vhost) == ["other", "q"]
        rest(vhost)
        assert names(vhost) == ["other", "q"]
        assert vhost.bindings_to("q", to_exchange=False) == [binding]
        assert vhost.route("x", "1") == ()

    def test_an_exchange_with_bindings_of_deleted_queues_only_is_unused(self, vhost: Host) -> None:
        with pytest.raises(BrokerError, match="in use"):
            vhost.delete_exchange("x", if_unused=True)
        vhost.unbind_queue("x", "other", "0")
        assert vhost.delete_exchange("x", if_unused=True)

    def test_a_new_exchange_of_a_deleted_name_routes_only_by_its_own_bindings(self, vhost: Host) -> None:
        vhost.delete_exchange("x")
        vhost.declare_exchange("x", "topic")
        assert names(vhost) == []
        vhost.bind_queue("x", "other", "0")
        rest(vhost)
        assert names(vhost) == ["other"]
        assert len(list(vhost.bindings())) == 1
