"""`python -m tests.rocketmq_kill --rounds 50` kills the broker while calls arrive together, and compares."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.rocketmq_kill.rounds import run_rounds


@click.command()
@click.option("--rounds", default=50, show_default=True, help="The number of kills.")
@click.option("--seed", default=1, show_default=True, help="Determines the requests and the moments of the kills.")
def main(rounds: int, seed: int) -> None:
    """Write many sends, half messages and decisions at once over both protocols, kill the broker, and compare."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-rocketmq-kill-") as folder:
        halves = run_rounds(Path(folder), rounds, seed, click.echo)
    click.echo(f"{rounds} rounds, {halves} half messages: nothing answered was lost, and nothing was delivered twice")


if __name__ == "__main__":
    main()
