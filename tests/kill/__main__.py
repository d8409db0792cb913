"""`python -m tests.kill --rounds 200 --seed 2` runs rounds of load and kill -9, and prints a line for each."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.kill.rounds import ChannelCrew, Crew, SessionCrew, run_rounds

CREWS: dict[str, type[Crew]] = {"amqp091": ChannelCrew, "amqp010": SessionCrew}


@click.command()
@click.option("--rounds", default=200, show_default=True, help="The number of times to kill the broker.")
@click.option("--seed", default=2, show_default=True, help="Determines the moments of the kills.")
@click.option("--protocol", type=click.Choice([*CREWS]), default="amqp091", show_default=True, help="Of the clients.")
def main(rounds: int, seed: int, protocol: str) -> None:
    """Load the real broker, kill it with -9, and check what it had confirmed to its clients."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-kill-") as folder:
        run_rounds(Path(folder), rounds, seed, click.echo, CREWS[protocol])
    click.echo(f"{rounds} rounds: no guarantee was violated")


if __name__ == "__main__":
    main()
