"""The records of changes of names, and the bindings that follow a deletion in later turns."""

from __future__ import annotations

import itertools

import pytest

from escrowmq.core.budget import TURN
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Site


@pytest.fixture
def site() -> Site:
    return Site()


def test_transient_names_are_not_logged(site: Site) -> None:
    before = site.journal.end_lsn
    site.broker.directory.declare_exchange(site.vhost, "x", "direct")
    site.queue("passing", durable=False)
    site.broker.directory.bind_queue(site.vhost, "x", "passing", "")
    site.broker.directory.bind_queue(site.vhost, "amq.direct", "passing", "")
    site.broker.directory.unbind_queue(site.vhost, "amq.direct", "passing", "")
    site.broker.directory.delete_exchange(site.vhost, "x")
    site.broker.directory.delete_queue(site.vhost.queue("passing"))
    assert site.journal.end_lsn == before


@pytest.mark.parametrize(
    ("kind", "arguments", "to_exchange", "noted"),
    [
        ("direct", {}, False, False),
        ("direct", {}, True, True),
        ("direct", {"alternate-exchange": "amq.fanout"}, False, True),
        ("x-consistent-hash", {}, False, True),
    ],
)
def test_a_transient_binding_that_changes_routes_is_noted_once(
    site: Site, kind: str, arguments: dict[str, object], to_exchange: bool, noted: bool
) -> None:
    directory, vhost = site.broker.directory, site.vhost
    directory.declare_exchange(vhost, "x", kind, durable=True, arguments=arguments)
    directory.declare_exchange(vhost, "passing", "fanout")
    site.queue("passing", durable=False)
    bind = directory.bind_exchange if to_exchange else directory.bind_queue
    for weight in ("1", "2"):
        bind(vhost, "x", "passing", weight)
    fields = encode_change(vhost="/", name="x")
    assert site.records(Kind.TRANSIENT_BOUND) == [fields] * noted
    assert site.restart().vhost.exchanges["x"].bound_transiently is noted
    site.snapshot()
    assert site.restart().vhost.exchanges["x"].bound_transiently is noted


def test_an_auto_delete_exchange_is_deleted_with_its_last_bound_queue(site: Site) -> None:
    site.broker.directory.declare_exchange(site.vhost, "x", "direct", durable=True, auto_delete=True)
    site.broker.directory.declare_exchange(site.vhost, "up", "fanout", durable=True)
    site.broker.directory.bind_exchange(site.vhost, "up", "x", "")
    site.broker.directory.bind_queue(site.vhost, "x", site.queue().name, "k")
    site.broker.directory.delete_queue(site.vhost.queue("q"))
    site.sync()
    for running in (site, site.restart()):
        assert "x" not in running.vhost.exchanges
        assert list(running.vhost.bindings()) == []


@pytest.mark.rule("FAIR-1")
def test_a_large_deletion_is_seen_at_once_and_completed_in_several_turns(site: Site) -> None:
    directory, vhost = site.broker.directory, site.vhost
    directory.declare_exchange(vhost, "x", "direct", durable=True, auto_delete=True)
    queue = site.queue("q")
    for number in range(1500):
        directory.bind_queue(vhost, "x", "q", f"{number}")
    directory.delete_queue(queue)
    assert "q" not in vhost.queues
    assert list(vhost.bindings()) == []
    left = [len(vhost.exchanges["x"].bindings)]
    while "x" in vhost.exchanges:
        site.broker.engine.turn.end()
        exchange = vhost.exchanges.get("x")
        left.append(0 if exchange is None else len(exchange.bindings))
    assert len(left) > 2
    assert max(before - after for before, after in itertools.pairwise(left)) <= TURN
    site.sync()
    assert "x" not in site.restart().vhost.exchanges


@pytest.mark.rule("FAIR-1")
def test_a_deletion_in_progress_ends_with_its_virtual_host(site: Site) -> None:
    site.broker.directory.declare_exchange(site.vhost, "x", "direct", durable=True, auto_delete=True)
    queue = site.queue("q")
    for number in range(1500):
        site.broker.directory.bind_queue(site.vhost, "x", "q", f"{number}")
    site.broker.directory.delete_queue(queue)
    site.broker.directory.delete_vhost("/")
    site.broker.directory.add_vhost("/")
    while site.broker.engine.turn.unfinished:
        site.turn()
    site.sync()
    assert "x" not in Site(site.storage).vhost.exchanges


@pytest.mark.rule("FAIR-1")
def test_the_bindings_of_a_deleted_virtual_host_are_freed_in_several_turns(site: Site) -> None:
    vhost = site.vhost
    for number in range(1500):
        site.broker.directory.bind_exchange(vhost, "amq.direct", "amq.fanout", f"{number}")
    bindings = vhost.exchanges["amq.direct"].bindings
    site.broker.directory.delete_vhost("/")
    left = [1500, len(bindings)]
    while site.broker.engine.turn.unfinished:
        site.broker.engine.turn.end()
        left.append(len(bindings))
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) <= TURN + vhost.unbinding.most
