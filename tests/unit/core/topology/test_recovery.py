"""The restoration of names at a restart, from records and from snapshots."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.conditions import BrokerError
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Site
from tests.unit.core.topology.durable_names import topology

names = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("queue"), names, st.booleans()),
    st.tuples(st.just("delete queue"), names),
    st.tuples(st.just("exchange"), names, st.booleans(), st.booleans()),
    st.tuples(st.just("delete exchange"), names),
    st.tuples(st.just("bind"), names, names),
    st.tuples(st.just("bind exchange"), names, names),
    st.tuples(st.just("unbind"), names, names),
    st.tuples(st.just("unbind exchange"), names, names),
    st.tuples(st.just("publish"), names),
    st.tuples(st.just("snapshot")),
)


def do(site: Site, step: tuple[Any, ...]) -> None:
    broker, vhost = site.broker, site.vhost
    match step:
        case ("queue", name, durable):
            site.queue(name, durable=durable)
        case ("delete queue", name):
            broker.directory.delete_queue(vhost.queue(name))
        case ("exchange", name, durable, auto_delete):
            broker.directory.declare_exchange(vhost, name, "topic", durable=durable, auto_delete=auto_delete)
        case ("delete exchange", name):
            broker.directory.delete_exchange(vhost, name)
        case ("bind", source, name):
            broker.directory.bind_queue(vhost, source, name, "k", {"x": b"\x00"})
        case ("bind exchange", source, name):
            broker.directory.bind_exchange(vhost, source, name, "k")
        case ("unbind", source, name):
            broker.directory.unbind_queue(vhost, source, name, "k", {"x": b"\x00"})
        case ("unbind exchange", source, name):
            broker.directory.unbind_exchange(vhost, source, name, "k")
        case ("publish", key):
            site.publish(key, b"x")
        case _:
            site.turn()
            site.snapshot()


@given(st.lists(steps, max_size=25))
def test_a_restart_restores_every_durable_name(plan: list[tuple[Any, ...]]) -> None:
    site = Site()
    for step in plan:
        with contextlib.suppress(BrokerError):  # the name is missing, or the attributes differ
            do(site, step)
    site.turn()
    again = site.restart()
    assert topology(again) == topology(site)
    for queue in site.broker.directory.durable_queues():
        assert again.contents(queue.name) == site.contents(queue.name)
    again.snapshot()
    assert topology(again.restart()) == topology(site)


@given(st.lists(steps, max_size=25))
def test_a_restart_amid_deletions_restores_every_durable_name(plan: list[tuple[Any, ...]]) -> None:
    """Only an exchange that was about to be deleted automatically may be left, without bindings."""
    site = Site()
    site.vhost.unbinding.most = 1
    for step in plan:
        site.broker.engine.requests.left = 0  # so that a deletion does no more than it must at once
        with contextlib.suppress(BrokerError):  # the name is missing, or the attributes differ
            do(site, step)
    site.sync()
    again = site.restart()
    while site.broker.engine.turn.unfinished:
        site.turn()
    extra = [record for record in topology(again) if record not in topology(site)]
    assert [record for record in topology(again) if record not in extra] == topology(site)
    for kind, fields in extra:
        assert kind is Kind.EXCHANGE_DECLARED
        assert fields["auto_delete"]
        assert not again.vhost.exchanges[fields["name"]].bindings
