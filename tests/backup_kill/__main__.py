"""`python -m tests.backup_kill --rounds 50` backs a broker up under load, kills, restores, audits and counts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.backup_kill.rounds import Rounds


@click.command()
@click.option("--rounds", default=50, show_default=True, help="The number of backups that are restored.")
@click.option("--seed", default=2, show_default=True, help="Determines the moments of the kills.")
def main(rounds: int, seed: int) -> None:
    """Back up a broker under load, kill the backup, the follower or the broker, restore, audit, and count."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-backup-kill-") as folder:
        Rounds(Path(folder), seed).run(rounds, click.echo)
    click.echo(f"{rounds} rounds: every backup had what was confirmed before it")


if __name__ == "__main__":
    main()
