"""`escrowmq queues`: the queues of a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.listing import ListView, selected, selection_options
from escrowmq.cli.options import asks, data_dir_option, json_option
from escrowmq.cli.tables import longest_first, show_queues


@click.command()
@data_dir_option
@json_option
@click.option("--vhost", help="Only queues of this virtual host.")
@selection_options
@asks
def queues(data_dir: Path, as_json: bool, vhost: str | None, selection: ListView) -> None:
    """List queues with the numbers of their messages.

    `ready` messages wait for a consumer. `unsettled` messages are with a consumer and not yet acknowledged. `held`
    messages are reserved for bulk readers (see `escrowmq holds`). While transactions are in doubt, `locked` messages
    were settled by one of them, and `withheld` messages were published by one. Each message is in one column: a locked
    one is neither unsettled nor held. The HTTP API and metrics count locked deliveries as unacknowledged.

    The longest queues are first. The broker makes the list in small pieces between its other work.

    \b
    Examples:
      escrowmq queues --data-dir /var/lib/escrowmq --vhost /
      escrowmq queues --match orders --sort consumers --page 1
    """
    found = selected(ask(data_dir, "queue.list", vhost=vhost), selection, name="name", order=longest_first)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show_queues(found)
