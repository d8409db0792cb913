"""`escrowmq holds`: list the reservations of bulk readers, and release those that no reader will settle."""

from __future__ import annotations

import json
from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, confirmed, data_dir_option, json_option
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.cli.tables import show_rows
from escrowmq.text import counted, printable


@click.group(cls=CommandGroup, invoke_without_command=True)
@data_dir_option
@json_option
@click.option("--all", "every", is_flag=True, help="Also list groups that hold no messages now.")
@click.pass_context
@asks
def holds(ctx: click.Context, data_dir: Path, as_json: bool, every: bool) -> None:
    """List the messages that groups of bulk readers hold, or release them.

    A group, such as a Spark query, reserves messages of a queue until it settles them; consumers do not get them. The
    group numbers the messages of the queue for itself, and holds those from `first` to `end` - 1. `in doubt` is the
    number of prepared transactions that will settle some of them, and `age` says for how many seconds the first message
    has been held.

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
            show_rows(found, ("vhost", "queue", "group", "held", "first", "end", "settled", "in_doubt", "age"))


@holds.command("release")
@data_dir_option
@click.argument("queue")
@click.argument("group")
@click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks
def release(data_dir: Path, queue: str, group: str, vhost: str, yes: bool) -> None:
    """Return the messages that GROUP holds to their places in QUEUE, marked as redelivered.

    Use this for a reader that will not return. A reader that is still running, or returns, fails with an error that the
    messages no longer exist. Messages that it has processed without settling them are then processed twice.
    """
    if not yes and not confirmed(f"Return the messages that '{printable(group)}' holds to queue '{printable(queue)}'?"):
        raise click.ClickException("nothing was released")
    count = ask(data_dir, "hold.release", vhost=vhost, queue=queue, group=group)
    click.echo(f"{counted(count, 'message')} released")
