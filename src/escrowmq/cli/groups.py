"""`escrowmq group`: list, show and create consumer groups, reset their progress, and delete them."""

from __future__ import annotations

from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, confirmed, data_dir_option, json_option, show
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.text import printable

_vhost_option = click.option("--vhost", default="/", show_default=True, help="The virtual host of the group.")
_yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group(cls=CommandGroup)
def group() -> None:
    """Manage the consumer groups of a running broker.

    Each group gets every message of the topics that it consumes, and its members share them.

    \b
    Examples:
      escrowmq group list --data-dir /var/lib/escrowmq
      escrowmq group show billing --data-dir /var/lib/escrowmq
      escrowmq group create billing --fifo --attempts 5 --data-dir /var/lib/escrowmq
      escrowmq group reset billing orders first --data-dir /var/lib/escrowmq
    """


@group.command("list")
@data_dir_option
@json_option
@asks
def list_groups(data_dir: Path, as_json: bool) -> None:
    """List consumer groups with their lag.

    `lag` messages are not settled; members have, or had, `unsettled` ones of them.
    """
    columns = ("vhost", "name", "fifo", "max_attempts", "dead_letters", "streams", "lag", "unsettled")
    show(ask(data_dir, "group.list"), columns, as_json=as_json)


@group.command("show")
@data_dir_option
@json_option
@click.argument("name")
@_vhost_option
@asks
def show_group(data_dir: Path, as_json: bool, name: str, vhost: str) -> None:
    """Show the progress of group NAME in each stream.

    Everything before `offset` is settled, `next offset` is that of the next message to arrive, and members have
    `leased` messages now. A member that consumes the stream in order has locked it.
    """
    columns = ("queue", "offset", "next_offset", "lag", "leased", "locked_by")
    show(ask(data_dir, "group.show", vhost=vhost, name=name), columns, as_json=as_json)


@group.command("create")
@data_dir_option
@click.argument("name")
@_vhost_option
@click.option(
    "--fifo/--no-fifo", default=None, help="Hand out messages of one message group one after the other.  [default: no]"
)
@click.option(
    "--attempts",
    type=click.IntRange(1, 1000),
    help="Deliveries of a message before it goes to the dead-letter topic.  [default: 16]",
)
@click.option(
    "--dead-letters", metavar="TOPIC", help="The dead-letter topic, which is created. The default is %DLQ%NAME."
)
@asks
def create(
    data_dir: Path, name: str, vhost: str, fifo: bool | None, attempts: int | None, dead_letters: str | None
) -> None:
    """Create consumer group NAME, or change its settings.

    Without this command, the first member creates its group, with 16 attempts and without an order. A group that exists
    keeps the settings that are not given.
    """
    given = {"dead_letter_topic": dead_letters, "fifo": fifo, "attempts": attempts}
    row = ask(data_dir, "group.create", vhost=vhost, name=name, **given)
    order = "in order" if row["fifo"] else "in any order"
    click.echo(f"group '{printable(name)}' gets messages {order}, each at most {row['max_attempts']} times")


@group.command("reset")
@data_dir_option
@click.argument("name")
@click.argument("topic")
@click.argument("to")
@_vhost_option
@click.option("--partition", type=click.IntRange(0), help="Only this partition of the topic.")
@_yes_option
@asks
def reset(data_dir: Path, name: str, topic: str, to: str, vhost: str, partition: int | None, yes: bool) -> None:
    """Set the progress of group NAME in TOPIC to TO.

    TO is `first`, `next`, an offset, or `@` and a time in milliseconds. Messages from there on are delivered again,
    also those that were settled, and messages before it are not. A stream that has fewer messages than an offset says
    is set to its end. Members lose the messages that they have at the time.
    """
    if not yes:
        ask(data_dir, "group.reset", vhost=vhost, name=name, topic=topic, to=to, partition=partition, dry_run=True)
    if not yes and not confirmed(f"Reset group '{printable(name)}' in topic '{printable(topic)}' to {printable(to)}?"):
        raise click.ClickException("nothing was reset")
    found = ask(data_dir, "group.reset", vhost=vhost, name=name, topic=topic, to=to, partition=partition)
    new = (
        f"; the group had not consumed {found['new']:,} of them, and its lag now includes them" if found["new"] else ""
    )
    click.echo(f"{found['streams']:,} streams reset{new}")


@group.command("delete")
@data_dir_option
@click.argument("name")
@_vhost_option
@_yes_option
@asks
def delete(data_dir: Path, name: str, vhost: str, yes: bool) -> None:
    """Delete group NAME with its progress.

    A member that consumes again makes a new group.
    """
    if not yes:
        ask(data_dir, "group.show", vhost=vhost, name=name)  # an unknown group is refused before the question
    if not yes and not confirmed(f"Delete consumer group '{printable(name)}' with its progress?"):
        raise click.ClickException("nothing was deleted")
    ask(data_dir, "group.delete", vhost=vhost, name=name)
    click.echo("the group is deleted")
