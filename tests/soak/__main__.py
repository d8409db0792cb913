"""`python -m tests.soak --minutes 60` loads a broker beside hostile neighbours, and judges its whole history.

Then a broker is backed up and restored under load, again and again, while it and the backup are killed. Then a Spark
query moves messages while its processes and the broker are killed and frozen (PIPE-7). Three brokers share a journal on
NATS and then on Kafka, while their leaders and the engine's nodes are killed and frozen (REPL-2). At the end, every
world of the simulator runs on a simulated log. Each part is left out if its option is 0.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from tests.backup_kill.rounds import Rounds
from tests.rocketmq_kill.rounds import run_rounds
from tests.soak.histories import run_histories
from tests.soak.load import Soak, audit
from tests.soak.take_overs import run_take_overs
from tests.spark_kill.moments import run_moments

KILLS_PER_MINUTE = 1


@click.command()
@click.option("--minutes", default=60.0, show_default=True, help="The duration of the load.")
@click.option("--period", default=30.0, show_default=True, help="Seconds of load between two counts of all messages.")
@click.option("--size", default=200, show_default=True, help="The number of objects in an attack.")
@click.option("--seed", default=1, show_default=True, help="Determines the order of attacks, among others.")
@click.option(
    "--kills",
    default=100,
    show_default=True,
    help="How often processes around a Spark query are killed or frozen; 0 for never.",
)
@click.option("--backups", default=50, show_default=True, help="How often a backup is made under load and restored.")
@click.option(
    "--take-overs",
    default=2000,
    show_default=True,
    help="Rounds of faults with replicated brokers, half on each engine.",
)
@click.option(
    "--first-take-over",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The number of the round to go on with after an interruption. Each batch of rounds prints what to give.",
)
@click.option(
    "--histories",
    default=15_000,
    show_default=True,
    help="Simulated histories of replication, of each world and of each planted bug; 0 for none.",
)
def main(
    minutes: float,
    period: float,
    size: int,
    seed: int,
    kills: int,
    backups: int,
    take_overs: int,
    first_take_over: int,
    histories: int,
) -> None:
    """Load the real broker with mixed traffic and attacks. Nothing may be lost, and its memory must stay flat."""
    if minutes:
        load(minutes, period, size, seed)
    if backups:
        with tempfile.TemporaryDirectory(prefix="escrowmq-backup-kill-") as folder:
            Rounds(Path(folder), seed).run(backups, click.echo)
        click.echo(f"{backups} backups under load and kills: restored, audited and counted")
    if kills:
        with tempfile.TemporaryDirectory(prefix="escrowmq-spark-kill-") as folder:
            run_moments(Path(folder), kills, seed, click.echo)
        click.echo(f"{kills} kills and freezes around a Spark query: every message was moved exactly once")
    run_take_overs(take_overs, first_take_over, seed, click.echo)
    if histories:
        run_histories(histories, seed, click.echo)
    click.echo("no guarantee was violated")


def load(minutes: float, period: float, size: int, seed: int) -> None:
    """Load a broker beside hostile neighbours, then kill one while calls of RocketMQ's clients arrive."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-soak-") as folder:
        soak = Soak(Path(folder), seed=seed, size=size, report=click.echo)
        soak.run(minutes * 60, period)
        click.echo("the audit of the whole history …")
        started = time.monotonic()
        audit(soak.data_dir, Path(folder) / "audit")
        click.echo(f"clean after {time.monotonic() - started:.0f} s")
    with tempfile.TemporaryDirectory(prefix="escrowmq-rocketmq-kill-") as folder:
        click.echo("kill -9 while calls of RocketMQ's clients arrive together …")
        run_rounds(Path(folder), max(int(minutes * KILLS_PER_MINUTE), 1), seed, click.echo)
    click.echo(f"{minutes:g} minutes: no guarantee was violated, and memory was flat")


if __name__ == "__main__":
    main()
