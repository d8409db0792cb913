"""`python -m tests.half_kill --rounds 200` kills broker and producers at random, and compares database and topic."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.half_kill.rounds import run_rounds


@click.command()
@click.option("--rounds", default=200, show_default=True, help="The number of kills.")
@click.option("--seed", default=2, show_default=True, help="Determines the victims and the moments.")
def main(rounds: int, seed: int) -> None:
    """Place orders in PostgreSQL and announce them with half messages, kill broker and producers, and compare."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-half-kill-") as folder:
        found = run_rounds(Path(folder), rounds, seed, click.echo)
    click.echo(
        f"{rounds} rounds: {len(found.placed)} orders placed and each delivered exactly once, "
        f"{len(found.given_up)} given up and not delivered"
    )


if __name__ == "__main__":
    main()
