"""A standby that starts empty behind a long journal, of which little lives."""

from __future__ import annotations

import time
from pathlib import Path

from bench.brokers import Broker
from bench.cluster import NODES, wait_until
from bench.measure import Measurement, perf
from bench.replicated_brokers import OnKafka, OnNats, ReplicatedEscrowMQ
from bench.scenario import MB, Figure, Scenario, Settings, fill
from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.journal.format import TYPE_SEGMENT, parse_name

_BODY = 16_000
_ROUNDS = 10
_KEPT_BYTES = 200 * MB
_GONE_BYTES = 9_800 * MB
_REPORT_SECONDS = 6.0
"""After so long, a report in the log says where the newest map is."""


class StandbyStart(Scenario):
    """The figures are of the files that the standby has when it follows the leader."""

    fresh = True
    peers = ()
    alternations = 1

    def __init__(self, name: str, title: str, own: type[ReplicatedEscrowMQ]) -> None:
        super().__init__(
            name,
            (
                Figure(name, title, "s", below=60),
                Figure(f"{name}.copied", "— bytes of its files", "MB"),
                Figure(f"{name}.share", "— divided by those of the leader's, which live", "", below=1.05),
                Figure(f"{name}.journal", "— length of the journal", "MB"),
            ),
        )
        self.own = own

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        assert isinstance(broker, ReplicatedEscrowMQ)
        late = (broker.ports.index(broker.port) + 1) % NODES
        broker.stop_node(late)
        for number in range(_ROUNDS):
            fill(broker, int(settings.scale * _KEPT_BYTES / _ROUNDS / _BODY), "--persistent", size=_BODY)
            count = int(settings.scale * _GONE_BYTES / _ROUNDS / _BODY)
            perf(broker, "--scenario", "confirms", "--size", str(_BODY), "--count", str(count), "--window", "200")
            if number == _ROUNDS - 1:
                ask(broker.data_dir, "journal.compact")
        time.sleep(_REPORT_SECONDS)
        began = time.monotonic()
        broker.start_node(late)
        wait_until(lambda: _follows(broker, late), "the standby follows")
        seconds = time.monotonic() - began
        length = ask(broker.data_dir, "replica.status")["lsn"]
        copied, living = _size(broker.data_dirs[late], length), _size(broker.data_dir, length)
        found = {"": seconds, ".copied": copied / MB, ".share": copied / living, ".journal": length / MB}
        return Measurement({f"{self.name}{name}": value for name, value in found.items()})


def _follows(broker: ReplicatedEscrowMQ, node: int) -> bool:
    try:
        found, leader = (ask(path, "replica.status") for path in (broker.data_dirs[node], broker.data_dir))
    except AdminError:
        return False
    return bool(found["lsn"] and found["lsn"] >= leader["lsn"])


def _size(folder: Path, end_lsn: int) -> int:
    """Return the bytes of segments and snapshots, without the space that the newest segment has reserved."""
    parsed = ((path, parse_name(path.name)) for path in folder.iterdir())
    found = [(*name, path.stat().st_size) for path, name in parsed if name is not None]
    newest = max(lsn for kind, lsn, _ in found if kind == TYPE_SEGMENT)
    reserving = (TYPE_SEGMENT, newest)
    return sum(min(size, end_lsn - lsn) if (kind, lsn) == reserving else size for kind, lsn, size in found)


STANDBY_STARTS = tuple(
    StandbyStart(f"replicated-{own.engine.scheme}-standby", f"{name}: an empty standby follows, 10 GB of journal", own)
    for name, own in (("Kafka", OnKafka), ("NATS", OnNats))
)
