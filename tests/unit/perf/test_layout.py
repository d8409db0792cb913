"""Names and bindings of a load, and the routing keys of its publishers."""

from __future__ import annotations

from itertools import islice

from escrowmq.perf.layout import layout_of, routing_keys
from escrowmq.perf.workload import Workload


def keys_of(workload: Workload, publisher: int = 0, number: int = 6) -> list[str]:
    _, keys = routing_keys(layout_of(workload), workload, publisher, workload.publishers)
    return list(islice(keys, number))


def test_a_single_named_queue_has_its_name() -> None:
    assert layout_of(Workload(queue="q")).queues == ["q"]


def test_several_named_queues_are_numbered() -> None:
    assert layout_of(Workload(queue="q", queues=2)).queues == ["q-0000", "q-0001"]


def test_queues_without_a_name_get_new_ones() -> None:
    assert layout_of(Workload()).queues != layout_of(Workload()).queues


def test_a_fanout_binds_every_queue() -> None:
    layout = layout_of(Workload(fanout=2, queue="q"))
    assert layout.kind == "fanout"
    assert layout.bindings == (("q-0000", ""), ("q-0001", ""))
    assert keys_of(Workload(fanout=2)) == [""] * 6


def test_every_routing_key_matches_exactly_one_binding() -> None:
    layout = layout_of(Workload(keys=12, bindings=3, queues=2, queue="q"))
    assert layout.kind == "topic"
    assert layout.bindings == (("q-0000", "region.0.*"), ("q-0001", "region.1.*"), ("q-0000", "region.2.*"))
    assert len(set(layout.keys)) == 12
    patterns = [key.removesuffix("*") for _, key in layout.bindings]
    assert all(sum(key.startswith(pattern) for pattern in patterns) == 1 for key in layout.keys)


def test_queues_are_distributed_and_used_in_turn() -> None:
    load = Workload(queues=4, producers=2, queue="q")
    assert keys_of(load, 0, 3) == ["q-0000", "q-0002", "q-0000"]
    assert keys_of(load, 1, 3) == ["q-0001", "q-0003", "q-0001"]


def test_publishers_share_queues_if_there_are_fewer_queues() -> None:
    assert keys_of(Workload(producers=3, queues=2, queue="q"), 2, 1) == ["q-0000"]


def test_random_queues_are_reproducible_and_all_are_used() -> None:
    load = Workload(queues=20, random=True, queue="q")
    assert keys_of(load, number=1000) == keys_of(load, number=1000)
    assert len(set(keys_of(load, number=1000))) == 20
