"""`python -m tests.spark_kill --rounds 50 --seed 4` kills driver, workers and broker, and prints a line per round."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.spark_kill.moments import run_moments
from tests.spark_kill.points import POINTS
from tests.spark_kill.rounds import plan, run_rounds


@click.command()
@click.option("--rounds", default=50, show_default=True, help="The number of kills.")
@click.option("--seed", default=4, show_default=True, help="The seed for the order of the kills.")
@click.option(
    "--point", help=f"Kill only at points whose name contains this text. The points are: {'; '.join(POINTS)}."
)
@click.option("--moments", is_flag=True, help="Kill and freeze at random moments instead of at the points.")
def main(rounds: int, seed: int, point: str | None, moments: bool) -> None:
    """Move messages between queues with Spark, kill the processes involved, and count the messages."""
    if moments:
        with tempfile.TemporaryDirectory(prefix="escrowmq-spark-kill-") as folder:
            run_moments(Path(folder), rounds, seed, click.echo)
        click.echo(f"{rounds} rounds: every message was moved exactly once, and no branch or reservation is left")
        return
    points = plan(rounds, seed) if point is None else [name for name in POINTS if point in name] * rounds
    with tempfile.TemporaryDirectory(prefix="escrowmq-spark-kill-") as folder:
        run_rounds(Path(folder), points, seed, click.echo)
    click.echo(f"{len(points)} rounds: every message was moved exactly once, and no branch or reservation is left")


if __name__ == "__main__":
    main()
