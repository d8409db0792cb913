"""`python -m tests.xa_java_kill --rounds 20 --seed 3` prints a line for each round."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.xa_java_kill.rounds import JavaRounds
from tests.xa_java_kill.steps import EVERY, schedule


@click.command()
@click.option("--rounds", default=len(EVERY), show_default=True, help="How many kills; the default is every one.")
@click.option("--seed", default=1, show_default=True, help="Another seed, another order.")
def main(rounds: int, seed: int) -> None:
    """Kill the Java program, broker and PostgreSQL in turn, and compare the results."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-xa-java-kill-") as folder:
        JavaRounds(Path(folder)).run(Path(folder), schedule(rounds, seed), click.echo)
    click.echo(f"{rounds} rounds: table, orders and shipments agree, and nothing is locked")


if __name__ == "__main__":
    main()
