"""`python -m tests.replica_kill --rounds 100 --engine nats` harms replicated brokers under load in all ways."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from tests.engines.kafka_nodes import KafkaNodes
from tests.engines.nats_nodes import NatsNodes
from tests.engines.nodes import EngineNodes
from tests.pipeline.direct import audited
from tests.replica_kill import network
from tests.replica_kill.nodes import NODES
from tests.replica_kill.rounds import Rounds

KINDS: dict[str, type[EngineNodes]] = {"nats": NatsNodes, "kafka": KafkaNodes}


@click.command()
@click.option("--rounds", default=100, show_default=True, help="The number of faults.")
@click.option("--seed", default=1, show_default=True, help="Determines the faults and their order.")
@click.option("--engine", type=click.Choice(list(KINDS)), default="nats", show_default=True, help="The engine.")
@click.option("--folder", type=click.Path(path_type=Path), help="For data and logs; a temporary one by default.")
def main(rounds: int, seed: int, engine: str, folder: Path | None) -> None:
    """Run rounds of faults, compare what is left with what clients know, compare the journals, and audit each."""
    if not network.why_not() and not network.entered():
        network.enter([sys.executable, "-u", "-m", "tests.replica_kill", *sys.argv[1:]])
    kind = KINDS[engine]
    if (why := kind.missing()) is not None:
        raise click.ClickException(f"{kind.engine}: {why}")
    with _folder(folder) as found:
        run(found, kind, rounds, seed)
    click.echo(f"{rounds} rounds of faults on {kind.engine}: nothing was lost, and every journal is clean")


def run(folder: Path, kind: type[EngineNodes], rounds: int, seed: int) -> None:
    """Run rounds, with a network of their own if this process is in namespaces of its own."""
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network.Network(NODES)) if network.entered() else None
        host = network.ENGINE if net is not None else "127.0.0.1"
        nodes = stack.enter_context(kind(folder / "engine", 3, host))
        found = Rounds(folder, nodes, "kills", seed, net)
        stack.callback(found.brokers.drop_disk)
        try:
            for data_dir in found.run(rounds, click.echo):
                wrong = audited(data_dir).wrong
                assert not wrong, f"{data_dir}: {wrong[:5]}"
        except BaseException:
            found.brokers.keep_disk()
            raise


@contextlib.contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="escrowmq-replica-kill-") as name:
        yield Path(name)


if __name__ == "__main__":
    main()
