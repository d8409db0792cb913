"""`python -m tests.xa_kill --rounds 100 --seed 3` prints a line for each round."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.xa_kill.rounds import kills_for, run_rounds


@click.command()
@click.option("--rounds", default=100, show_default=True, help="How many kills; 73 are every victim at every step.")
@click.option("--seed", default=3, show_default=True, help="Another seed, another order.")
def main(rounds: int, seed: int) -> None:
    """Kill application, broker, transaction manager and PostgreSQL in turn, and compare the results."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-xa-kill-") as folder:
        run_rounds(Path(folder), kills_for(rounds, seed), click.echo)
    click.echo(f"{rounds} rounds: table, orders and shipments agree, and nothing is locked")


if __name__ == "__main__":
    main()
