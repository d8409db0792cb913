"""`escrowmq links`: list the termini of AMQP 1.0 links, release their deliveries, or end them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, confirmed, data_dir_option, json_option
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.cli.tables import show_rows
from escrowmq.text import counted, printable

_COLUMNS = (
    "vhost",
    "container",
    "link",
    "role",
    "state",
    "seconds",
    "unsettled",
    "age",
    "settles",
    "durability",
    "expiry",
    "expires",
)
_vhost_option = click.option("--vhost", default="/", show_default=True, help="The virtual host of the link.")
_yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group(cls=CommandGroup, invoke_without_command=True)
@data_dir_option
@json_option
@click.option("--all", "every", is_flag=True, help="Also list attached links without unsettled deliveries.")
@click.pass_context
@asks
def links(ctx: click.Context, data_dir: Path, as_json: bool, every: bool) -> None:
    """List AMQP 1.0 links with their unsettled deliveries, release or end them.

    The broker's end of a link, its terminus, can outlive the connection, and then keeps its unsettled deliveries for
    the client. `role` is `outgoing` if the client receives and `incoming` if it sends. `seconds` says for how long the
    link has been attached or suspended, `age` for how long it has had unsettled deliveries, and `expires` in how many
    seconds the terminus will end, if it will. No consumer gets the messages that are unsettled on a suspended outgoing
    link.

    \b
    Examples:
      escrowmq links --data-dir /var/lib/escrowmq
      escrowmq links release billing-7 orders --data-dir /var/lib/escrowmq
      escrowmq links expire billing-7 orders outgoing --data-dir /var/lib/escrowmq
    """
    if ctx.invoked_subcommand is None:
        found = [row for row in ask(data_dir, "link.list") if every or row["unsettled"] or row["state"] == "suspended"]
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            show_rows(sorted(found, key=lambda row: -(row["age"] or 0)), _COLUMNS)


@links.command("release")
@data_dir_option
@click.argument("container")
@click.argument("link")
@_vhost_option
@_yes_option
@asks
def release(data_dir: Path, container: str, link: str, vhost: str, yes: bool) -> None:
    """Return the unsettled messages of a suspended outgoing LINK to their queues, by its default outcome.

    Use this if the client of CONTAINER will not return soon. The link can still be resumed. A client that has processed
    a message without settling it may then process it twice.
    """
    if not yes and not confirmed(f"Return the unsettled messages of link '{printable(link)}' to their queues?"):
        raise click.ClickException("nothing was released")
    count = ask(data_dir, "link.release", vhost=vhost, container=container, link=link)
    click.echo(f"{counted(count, 'message')} released")


@links.command("expire")
@data_dir_option
@click.argument("container")
@click.argument("link")
@click.argument("role", type=click.Choice(["incoming", "outgoing"]))
@_vhost_option
@_yes_option
@asks
def expire(data_dir: Path, container: str, link: str, role: str, vhost: str, yes: bool) -> None:
    """End LINK of CONTAINER now, as its timeout would.

    Unsettled messages of an outgoing link get its default outcome. For an incoming link the broker forgets which
    messages have arrived, so a client that sends them again publishes them twice.
    """
    if not yes and not confirmed(f"End {role} link '{printable(link)}' with its unsettled deliveries?"):
        raise click.ClickException("nothing was changed")
    count = ask(data_dir, "link.expire", vhost=vhost, container=container, link=link, role=role)
    click.echo(f"the link has ended, {count:,} {'delivery was' if count == 1 else 'deliveries were'} unsettled")
