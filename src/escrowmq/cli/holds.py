"""`escrowmq holds`: what groups of bulk readers keep, and freeing what nobody will settle."""

from __future__ import annotations

import json
from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, confirmed, data_dir_option, json_option
from escrowmq.cli.tables import show_rows
from escrowmq.text import printable


@click.group(invoke_without_command=True)
@data_dir_option
@json_option
@click.option("--all", "every", is_flag=True, help="Also groups that hold nothing now.")
@click.pass_context
@asks
def holds(ctx: click.Context, data_dir: Path, as_json: bool, every: bool) -> None:
    """List what groups of bulk readers hold of queues, or release it.

    A group, a Spark query say, keeps the messages `first` up to `end` - 1, by its own numbers, until it settles
    them; consumers do not get them so long. `in doubt` counts prepared transactions that will settle some of it.

    \b
    Examples:
      escrowmq holds --data-dir /var/lib/escrowmq
      escrowmq holds release orders etl --data-dir /var/lib/escrowmq
    """
    if ctx.invoked_subcommand is None:
        found = [row for row in ask(data_dir, "hold.list") if every or row["held"]]
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            show_rows(found, ("vhost", "queue", "group", "held", "first", "end", "settled", "in_doubt"))


@holds.command("release")
@data_dir_option
@click.argument("queue")
@click.argument("group")
@click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def release(data_dir: Path, queue: str, group: str, vhost: str, yes: bool) -> None:
    """Give back what GROUP holds of QUEUE: to its places, marked as delivered.

    For a reader that will not come back. One that is still there, or comes back, is told that the messages are gone,
    and fails rather than read others in their place; what it has made of them already may be made twice.
    """
    if not yes and not confirmed(f"Give back what '{printable(group)}' holds of queue '{printable(queue)}'?"):
        raise click.ClickException("nothing was released")
    count = ask(data_dir, "hold.release", vhost=vhost, queue=queue, group=group)
    click.echo(f"{count:,} messages released")
