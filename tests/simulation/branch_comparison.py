"""Compares a broker with the model of its branches: queues, states, progress, and the messages that the log keeps."""

from __future__ import annotations

from typing import Any

from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.broker import Broker
from escrowmq.journal.journal import Journal
from tests.harness.contents import body_of, parts
from tests.harness.holding import each_held
from tests.simulation import branch_marks
from tests.simulation.branch_model import QUEUES, Model
from tests.simulation.ledger import Violation


def compare(broker: Broker, model: Model, journal: Journal) -> None:
    """Compare queues, branches and progress with the model."""
    for name in QUEUES:
        if name not in broker.directory.vhost("/").queues:
            continue
        queue = broker.directory.vhost("/").queue(name)
        found: list[tuple[int, int, Any]] = []
        for holder in broker.engine.holders:
            for consumer, entry in each_held(holder):
                if consumer.queue is queue:
                    found.append((entry.position, int(body_of(entry)), getattr(holder, "xid", "")))
        found += [(entry.position, int(body_of(entry)), None) for entry in queue.order.in_memory()]
        for backlog in queue.order.backlogs():
            for reference in backlog:
                run = broker.engine.pager.load(reference)
                bodies = [parts(run.envelope, content)[1] for content in run.contents]
                found += [(reference.first + i, int(body), None) for i, body in enumerate(bodies)]
        branch_marks.compare(queue, model, {position: serial for position, serial, _ in found})
        there = [(serial, holder) for _, serial, holder in sorted(found, key=lambda item: item[0])]
        if queue.unsynced:
            raise Violation(f"{name} hides messages although everything is on disk")
        expected = [(i.serial, None if isinstance(i.holder, int) else i.holder) for i in model.queues[name]]
        if there != expected:
            raise Violation(f"{name} contains {there}; expected: {expected}")
        counted = sum(holder is not None for _, holder in expected)
        if queue.unsettled != counted:
            raise Violation(f"{name} counts {queue.unsettled} unsettled messages; expected: {counted}")
    known = {view.xid: view.state for view in broker.branches.views()}
    names = {"forced commit": "heuristic_committed", "forced rollback": "heuristic_rolled_back"}
    states = {x: names.get(b.state, b.state.replace(" ", "_")) for x, b in model.branches.items()}
    if known != states:
        raise Violation(f"branches are {known}; expected: {states}")
    if (broker.coordinator.progress.epoch("app") or -1) != (model.progress or -1):
        raise Violation(f"progress is {broker.coordinator.progress.epoch('app')}; expected: {model.progress}")
    _compare_log(broker, journal)


def _compare_log(broker: Broker, journal: Journal) -> None:
    """Check that the log retains exactly the messages of queues, clients and branches."""
    kept = sum(segment.live for segment in journal._table)
    held = sum(bool(entry.run.lsn) for holder in broker.engine.holders for _, entry in each_held(holder))
    for queue in broker.directory.vhost("/").queues.values():
        held += sum(bool(entry.run.lsn) for entry in queue.order.in_memory())
        held += sum(backlog.messages for backlog in queue.order.backlogs())
    for holder in broker.engine.holders:
        if isinstance(holder, XaBranch):
            held += sum(run.retained for run in holder.runs)
    if kept != held:
        raise Violation(f"the log retains {kept} messages; expected: {held}")
