"""`escrowmq status`: a running broker at a glance."""

from __future__ import annotations

import json
from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, data_dir_option, json_option
from escrowmq.cli.tables import show_status


@click.command()
@data_dir_option
@json_option
@asks
def status(data_dir: Path, as_json: bool) -> None:
    """Show the state of a running broker: load, journal, memory, alarms.

    \b
    Examples:
      escrowmq status --data-dir /var/lib/escrowmq
      escrowmq status --data-dir /var/lib/escrowmq --json | jq .journal.syncs
    """
    found = ask(data_dir, "status")
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show_status(found)
