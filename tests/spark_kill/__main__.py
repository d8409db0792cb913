"""`python -m tests.spark_kill --rounds 50 --seed 4`: rounds of killing driver, workers and broker, a line for each."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.spark_kill.points import POINTS
from tests.spark_kill.rounds import plan, run_rounds


@click.command()
@click.option("--rounds", default=50, show_default=True, help="How many times somebody is killed.")
@click.option("--seed", default=4, show_default=True, help="Another seed has another order.")
@click.option("--point", help=f"Only where this is part of the name, of: {'; '.join(POINTS)}.")
def main(rounds: int, seed: int, point: str | None) -> None:
    """Move messages from queue to queue through Spark, kill whoever takes part, and count."""
    points = plan(rounds, seed) if point is None else [name for name in POINTS if point in name] * rounds
    with tempfile.TemporaryDirectory(prefix="escrowmq-spark-kill-") as folder:
        run_rounds(Path(folder), points, seed, click.echo)
    click.echo(f"{len(points)} rounds: every message was moved exactly once, and nothing is left behind")


if __name__ == "__main__":
    main()
