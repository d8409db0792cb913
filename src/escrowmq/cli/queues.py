"""`escrowmq queues`: the queues of a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, data_dir_option, json_option
from escrowmq.cli.tables import show_queues


@click.command()
@data_dir_option
@json_option
@click.option("--vhost", help="Only those of this virtual host.")
@asks
def queues(data_dir: Path, as_json: bool, vhost: str | None) -> None:
    """List queues with what waits in them.

    `ready` waits for a consumer, `unsettled` is with one and not acknowledged yet, `held` is kept for bulk readers (see
    `escrowmq holds`). Where transactions are in doubt, `locked` is what they have taken, and `withheld` what they would
    bring.

    \b
    Example:
      escrowmq queues --data-dir /var/lib/escrowmq --vhost /
    """
    found = ask(data_dir, "queue.list", vhost=vhost)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show_queues(found)
