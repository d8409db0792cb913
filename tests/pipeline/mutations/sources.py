"""Valid journals in which faults are planted: of the real server in the simulator, and one written record by record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.marks import Marks
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import encode_decide, encode_number
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.groups import ProgressCause, encode_group_progress, encode_locked
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import encode_marked
from escrowmq.core.records.publishing import encode_targets
from escrowmq.core.records.queue_state import encode_returned
from escrowmq.core.records.reservations import Held, encode_held
from tests.harness.server import SimServer
from tests.pipeline.direct import export
from tests.pipeline.journals import Scribe
from tests.pipeline.planted import good, prepare
from tests.pipeline.planted_groups import GROUP, STREAM, good_group
from tests.pipeline.planted_journals import good_half, good_links, hold, settle_hold
from tests.pipeline.routed_journals import of_routes
from tests.simulation import branch_world
from tests.simulation.steps import steps_of
from tests.simulation.world import OPTIONS, World

_ALL_HISTORY = 1 << 40


def of_a_server(folder: Path, seed: int = 11) -> None:
    """Clients of AMQP 0-9-1 publish, consume, reject and commit, with compaction and restarts."""
    world = World(seed, options=replace(OPTIONS, deliveries=True, keep_dead_bytes=_ALL_HISTORY))
    world.run(steps_of(seed, 200))
    _finish(world.server)
    export(world.storage, folder)


def of_branches(folder: Path, seed: int = 12) -> None:
    """Clients prepare and decide branches in two phases, and an operator decides some."""
    with pytest.MonkeyPatch.context() as patch:
        options = replace(branch_world.OPTIONS, deliveries=True, keep_dead_bytes=_ALL_HISTORY)
        patch.setattr(branch_world, "OPTIONS", options)
        world = branch_world.BranchWorld(seed)
        world.run(steps_of(seed, 300, {**branch_world.WEIGHTS, "prepare": 60, "force": 30}))
        _finish(world.machine.server)
    export(world.machine.storage, folder)


def _finish(server: SimServer) -> None:
    """Write what waits, and take a snapshot, as a clean stop does."""
    server.run_disk()
    while server.relocate() or server.snapshot is not None:
        server.run_disk()
        server.write_snapshot()
        server.housekeep()
        server.run_files()
    while server.begin_snapshot():
        pass
    server.run_disk()
    server.write_snapshot()
    server.run_disk()
    while server.housekeep():
        server.run_disk()
        server.run_files()


def told(folder: Path) -> None:
    """Everything that audits know causes of: lifetimes, limits, returns, reservations, epochs, decisions by hand."""
    with Scribe(folder) as scribe:
        scribe.declare(Kind.VHOST_SET, "vhost", name="/")
        scribe.declare(Kind.USER_SET, "user", name="u", password_hash="", tags=[])
        scribe.declare(
            Kind.EXCHANGE_DECLARED,
            "exchange",
            vhost="/",
            name="events",
            kind="fanout",
            durable=True,
            auto_delete=False,
            internal=False,
            arguments={},
        )
        scribe.queue(1, "q")
        scribe.queue(2, "brief", **{"x-message-ttl": 5000})
        scribe.queue(3, "short", **{"x-max-length": 2})
        scribe.queue(4, "retries", **{"x-delivery-limit": 2, "x-queue-type": "quorum"})
        for name in ("brief", "short"):
            scribe.declare(
                Kind.BOUND,
                ("bound", name),
                vhost="/",
                source="events",
                destination=name,
                to_exchange=False,
                key="",
                arguments={},
            )
        scribe.frame()
        _outcomes(scribe)
        _bulk(scribe)
        _decisions(scribe)
        for application in ("/\0own", "/\0gone"):
            scribe.append(Kind.PROGRESS_OWNED, encode_change(application=application, user="u"))
        scribe.append(Kind.PROGRESS_RESET, encode_change(application="/\0gone"))
        scribe.queue(9, "good")
        good(scribe, 9)
        scribe.settle(9, [5, 7])
        scribe.snapshot(
            {1: [(7, 3)], 3: [(3, 2)], 4: [(4, 1)]},
            (int(Kind.PROGRESS), encode_change(application="/\0app", epoch=3)),
            (int(Kind.PROGRESS), encode_change(application="/\0own", epoch=-1, user="u")),
            (int(Kind.HELD), b"".join(encode_held(Held(1, "group", 5, 5, [], [])))),
        )


def _outcomes(scribe: Scribe) -> None:
    scribe.publish(2, 1, 2)
    scribe.append(Kind.PUBLISH, encode_targets([(1, 1)]), *_living(scribe, 1000))
    scribe.frame(1500)
    scribe.settle(1, [1], Outcome.EXPIRED)
    scribe.frame(4000)
    scribe.settle(2, [1, 2], Outcome.EXPIRED)
    for position in range(1, 5):
        scribe.publish(3, position)
        scribe.frame()
        if position > 2:
            scribe.settle(3, [position - 2], Outcome.DROPPED)
            scribe.frame()
    scribe.publish(4, 1, 4)
    scribe.frame()
    scribe.append(Kind.RETURNED, encode_returned(4, [(1, 1), (2, 1)]))
    scribe.frame()
    scribe.append(Kind.RETURNED, encode_returned(4, [(1, 2), (2, 2)]))
    scribe.frame()
    scribe.settle(4, [1], Outcome.DELIVERY_LIMIT)
    scribe.settle(4, [2, 3])
    scribe.frame()


def _living(scribe: Scribe, ttl: int) -> list[bytes]:
    return list(encode_block(scribe.now_us // 1000, Envelope("", "q", protocol=91, durable=True, ttl=ttl), [b"brief"]))


def _bulk(scribe: Scribe) -> None:
    scribe.publish(1, 2, 8)
    scribe.frame()
    hold(scribe, 1, 2, 3)
    settle_hold(scribe, 3, [2, 3])
    settle_hold(scribe, 4, [4])
    hold(scribe, 4, 6, 1, settled=4)
    settle_hold(scribe, 5, [6])
    for failures in (1, 2, 3):
        scribe.append(Kind.MARKED, encode_marked(1, [(5, Marks(failures))]))
        scribe.frame()
    scribe.settle(1, [5])
    scribe.frame()


def _decisions(scribe: Scribe) -> None:
    """An application decides a branch in each of three epochs. Another branch is rolled back."""
    scribe.queue(5, "source")
    scribe.publish(5, 1, 4)
    scribe.frame()
    for epoch in (1, 2, 3):
        prepare(scribe, 5, epoch)
        came = scribe.published([(5, 3 + 2 * epoch)], [b"one", b"two"])
        operations = scribe.settled(5, [epoch]), came
        scribe.append(Kind.DECIDE, *encode_decide("/\0app", epoch, [], [(scribe.branch, operations)])[0])
        scribe.frame()
    prepare(scribe, 5, 4)
    scribe.append(Kind.ROLLBACK, encode_number(scribe.branch))
    scribe.frame()
    scribe.settle(5, range(4, 11))
    scribe.frame()


def names(folder: Path) -> None:
    """Names of all kinds are added and removed."""
    fields = {"durable": True, "auto_delete": False, "internal": False, "arguments": {}}
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    with Scribe(folder) as scribe:
        for vhost in ("/", "other"):
            scribe.declare(Kind.VHOST_SET, ("vhost", vhost), name=vhost)
        for user in ("u", "v"):
            scribe.declare(Kind.USER_SET, ("user", user), name=user, password_hash="", tags=[])
        scribe.declare(Kind.PERMISSION_SET, "permission", user="u", vhost="/", **rights)
        topic = {"user": "u", "vhost": "/", "exchange": "amq.topic"}
        scribe.declare(Kind.TOPIC_PERMISSION_SET, "topic", **topic, write="a", read="b")
        scribe.declare(Kind.EXCHANGE_DECLARED, "exchange", vhost="/", name="x", kind="fanout", **fields)
        terms = {"pattern": "^x", "apply_to": "all", "priority": 0, "definition": {"max-length": 1}}
        for name in ("p", "r"):
            scribe.declare(Kind.POLICY_SET, ("policy", name), vhost="/", name=name, operator=False, **terms)
            scribe.declare(Kind.PARAMETER_SET, ("parameter", name), name=name, value={"a": 1})
        scribe.frame()
        scribe.forget(Kind.POLICY_DELETED, ("policy", "r"), vhost="/", name="r", operator=False)
        scribe.append(Kind.POLICIES_APPLIED, encode_change(vhost="/"))
        scribe.forget(Kind.PARAMETER_DELETED, ("parameter", "r"), name="r")
        scribe.forget(Kind.TOPIC_PERMISSION_DELETED, "topic", **topic)
        scribe.forget(Kind.PERMISSION_DELETED, "permission", user="u", vhost="/")
        scribe.forget(Kind.USER_DELETED, ("user", "v"), name="v")
        scribe.forget(Kind.EXCHANGE_DELETED, "exchange", vhost="/", name="x")
        scribe.forget(Kind.VHOST_DELETED, ("vhost", "other"), name="other")
        scribe.snapshot({})


def compacted(folder: Path) -> None:
    """Segments without living messages are deleted, at the beginning of the log and between others."""
    with Scribe(folder, segment_bytes=300) as scribe:
        scribe.queue(1, "q")
        scribe.frame()
        found = []
        for position in range(1, 9):
            found.append(scribe.publish(1, position))
            scribe.frame()
        for position in (2, 5, 8):
            scribe.journal.retain(found[position - 1], 1)
        scribe.settle(1, [1, 3, 4, 6, 7])
        scribe.snapshot({1: [(2, 1), (5, 1), (8, 1)]})
        scribe.settle(1, [5])
        scribe.journal.release(found[4], 1)
        scribe.snapshot({1: [(2, 1), (8, 1)]})
        scribe.publish(1, 9)
        scribe.frame()


def links(folder: Path) -> None:
    with Scribe(folder) as scribe:
        good_links(scribe)


def half(folder: Path) -> None:
    with Scribe(folder) as scribe:
        good_half(scribe)


def groups(folder: Path) -> None:
    with Scribe(folder) as scribe:
        good_group(scribe)
        scribe.append(Kind.GROUP_LOCKED, encode_locked(GROUP, STREAM, scribe.now_us // 1000 + 1000, "a member"))
        scribe.frame()
        told = encode_group_progress(GROUP, STREAM, ProgressCause.RESET, 11)
        scribe.snapshot({STREAM: [(1, 10)]}, (int(Kind.GROUP_PROGRESS), told))


SOURCES: dict[str, Callable[[Path], None]] = {
    "server": of_a_server,
    "server 2": lambda folder: of_a_server(folder, 12),
    "branches": of_branches,
    "branches 2": lambda folder: of_branches(folder, 9),
    "told": told,
    "names": names,
    "compacted": compacted,
    "routes": of_routes,
    "links": links,
    "half": half,
    "groups": groups,
}
INCOMPLETE: Final = frozenset({"compacted"})
"""Those without a part of their history, so a fault may be in what only that part could show."""
