"""`escrowmq replica`: nodes whose journal is on a replicated log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, data_dir_option, json_option
from escrowmq.cli.subcommands import CommandGroup


@click.group(cls=CommandGroup)
def replica() -> None:
    """Show which node leads on a replicated log, or let another one lead.

    \b
    Examples:
      escrowmq replica status --data-dir /var/lib/escrowmq
      escrowmq replica handover --data-dir /var/lib/escrowmq
    """


@replica.command()
@data_dir_option
@json_option
@asks
def status(data_dir: Path, as_json: bool) -> None:
    """Show who leads, and how far the node of a data directory follows.

    \b
    Examples:
      escrowmq replica status --data-dir /var/lib/escrowmq
      escrowmq replica status --data-dir /var/lib/escrowmq --json | jq .leader
    """
    found = ask(data_dir, "replica.status")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"node       {found['node']} ({found['role']})")
    click.echo(f"leader     {found['leader'] or 'none'} {found['leader_url']} since epoch {found['epoch']}")
    click.echo(f"journal    up to LSN {found['lsn']:#x}, position {found['position']} of the log")
    if found["fault"]:
        click.echo(f"fault      {found['fault']}")
    for each in found["take_overs"]:
        seen = datetime.fromtimestamp(each["seen"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        click.echo(f"take-over  epoch {each['epoch']} by {each['node']}, seen {seen}")


@replica.command()
@data_dir_option
@asks
def handover(data_dir: Path) -> None:
    """Let another node lead, before the machine of the leader is upgraded.

    The leader disconnects its clients, syncs its journal, resigns, and begins again as a standby. Another standby takes
    over at once.

    \b
    Examples:
      escrowmq replica handover --data-dir /var/lib/escrowmq
    """
    ask(data_dir, "replica.handover")
    click.echo("handed over: another node takes over now")
