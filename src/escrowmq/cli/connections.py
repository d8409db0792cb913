"""`escrowmq connections`: the clients' connections to a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.listing import ListView, selected, selection_options
from escrowmq.cli.options import asks, data_dir_option, json_option
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.cli.tables import oldest_first, show_connections


@click.group(cls=CommandGroup, invoke_without_command=True)
@data_dir_option
@json_option
@selection_options
@click.pass_context
@asks
def connections(ctx: click.Context, data_dir: Path, as_json: bool, selection: ListView) -> None:
    """List client connections, or close one.

    The oldest connections are first. --match compares their peers.

    \b
    Examples:
      escrowmq connections --data-dir /var/lib/escrowmq
      escrowmq connections --sort unsent_bytes --reverse --page 1 --page-size 10
      escrowmq connections close 10.0.0.7:51234 --reason maintenance --data-dir /var/lib/escrowmq
    """
    if ctx.invoked_subcommand is None:
        found = selected(ask(data_dir, "connection.list"), selection, name="peer", order=oldest_first)
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            show_connections(found)


@connections.command("close")
@data_dir_option
@click.argument("peer", metavar="HOST:PORT")
@click.option(
    "--reason", default="closed by an operator", show_default=True, help="The reason that is sent to the client."
)
@asks
def close_connection(data_dir: Path, peer: str, reason: str) -> None:
    """Close the connection from HOST:PORT. Its unacknowledged messages return to their queues."""
    ask(data_dir, "connection.close", peer=peer, reason=reason)
