"""`python -m tests.exactly_once_kill --rounds 200` kills sender, broker and receiver at random, and compares tables."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.exactly_once_kill.outsider import run_outsiders_rounds
from tests.exactly_once_kill.rounds import run_rounds


@click.command()
@click.option("--rounds", default=200, show_default=True, help="The number of kills.")
@click.option("--seed", default=2, show_default=True, help="Determines the victims and the moments.")
@click.option(
    "--outsider", is_flag=True, help="Use qpid-amqp-1-0-client, which `make jms` fetches, not our own client."
)
def main(rounds: int, seed: int, *, outsider: bool) -> None:
    """Move orders from table to queue to table, kill everybody at random, and count every order."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-exactly-once-") as folder:
        if outsider:
            for role, journal in zip(
                ("sender", "receiver"), run_outsiders_rounds(Path(folder), rounds, seed, click.echo), strict=True
            ):
                click.echo(f"deliveries that the {role} has resumed: {dict(journal.resumed)}")
        else:
            run_rounds(Path(folder), rounds, seed, click.echo)
    click.echo(f"{rounds} rounds: every order was shipped exactly once")


if __name__ == "__main__":
    main()
