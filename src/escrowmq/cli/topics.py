"""`escrowmq topic`: list, show, create and delete topics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import age, asks, confirmed, data_dir_option, json_option, show
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.text import printable

MESSAGE_TYPES = ("normal", "fifo", "delay", "transaction", "mixed", "unspecified")
_STREAM_AGE: Final = re.compile(r"[1-9]\d*[YMDhms]", re.ASCII)
_ROCKETMQ_NAME: Final = re.compile(r"[%|A-Za-z0-9_-]{1,127}")
_vhost_option = click.option("--vhost", default="/", show_default=True, help="The virtual host of the topic.")


def _stream_age(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return an age in the form of the argument `x-max-age`."""
    if value is None or _STREAM_AGE.fullmatch(value):
        return value
    return f"{max(round(age(context, parameter, value)), 1)}s"


def _not_empty(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value:
        raise click.BadParameter("the name is empty", context, parameter)
    return value


@click.group(cls=CommandGroup)
def topic() -> None:
    """Manage the topics of a running broker.

    A topic is an exchange that divides its messages among streams of its own, its partitions.

    \b
    Examples:
      escrowmq topic create orders --partitions 4 --data-dir /var/lib/escrowmq
      escrowmq topic show orders --data-dir /var/lib/escrowmq
    """


@topic.command("list")
@data_dir_option
@json_option
@click.option("--vhost", help="Only topics of this virtual host.")
@asks
def list_topics(data_dir: Path, as_json: bool, vhost: str | None) -> None:
    """List topics with the numbers of their messages.

    `bytes` is "–" for topics whose size is unknown, as `escrowmq topic show` explains.
    """
    rows = ask(data_dir, "topic.list", vhost=vhost)
    show(
        _with_sizes(rows, as_json=as_json),
        ("vhost", "name", "type", "partitions", "messages", "bytes"),
        as_json=as_json,
    )


@topic.command("show")
@data_dir_option
@json_option
@click.argument("name")
@_vhost_option
@asks
def show_topic(data_dir: Path, as_json: bool, name: str, vhost: str) -> None:
    """Show the partitions of topic NAME.

    Each is a stream: `next offset` is the offset of the next message to arrive. `bytes` is "–" while it is unknown, as
    it is after a restart for streams without a limit of their size.
    """
    columns = ("partition", "queue", "first_offset", "next_offset", "messages", "bytes", "unavailable")
    rows = ask(data_dir, "topic.show", vhost=vhost, name=name)
    show(_with_sizes(rows, as_json=as_json), columns, as_json=as_json)


@topic.command("create")
@data_dir_option
@click.argument("name", callback=_not_empty)
@_vhost_option
@click.option(
    "--partitions",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="The number of streams. A topic that exists gets more if it has fewer, and never loses any.",
)
@click.option(
    "--type",
    "message_type",
    type=click.Choice(MESSAGE_TYPES),
    default=MESSAGE_TYPES[0],
    show_default=True,
    help="The messages that RocketMQ clients may send.",
)
@click.option("--max-age", callback=_stream_age, help="Delete messages of this age, such as 7d or 12h.")
@click.option("--max-bytes", type=click.IntRange(1), help="Delete the oldest messages of a stream beyond this size.")
@asks
def create(
    data_dir: Path,
    name: str,
    vhost: str,
    partitions: int,
    message_type: str,
    max_age: str | None,
    max_bytes: int | None,
) -> None:
    """Create topic NAME, or add partitions to it.

    Clients of RocketMQ accept only names of at most 127 letters, digits, and the characters %, |, - and _.
    """
    row = ask(
        data_dir,
        "topic.create",
        vhost=vhost,
        name=name,
        partitions=partitions,
        message_type=message_type,
        max_age=max_age,
        max_bytes=max_bytes,
    )
    kept = ": a topic grows, but never shrinks" if row["partitions"] > partitions else ""
    click.echo(f"topic '{printable(name)}' has {row['partitions']} partitions{kept}")
    if not _ROCKETMQ_NAME.fullmatch(name):
        click.echo(
            "warning: clients of RocketMQ refuse this name: they accept at most 127 letters, digits, %, |, - and _",
            err=True,
        )


@topic.command("delete")
@data_dir_option
@click.argument("name")
@_vhost_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks
def delete(data_dir: Path, name: str, vhost: str, yes: bool) -> None:
    """Delete topic NAME with its messages.

    The progress of consumer groups in it is deleted, too.
    """
    if not yes:
        ask(data_dir, "topic.show", vhost=vhost, name=name)  # an unknown topic is refused before the question
    if not yes and not confirmed(f"Delete topic '{printable(name)}' with its messages?"):
        raise click.ClickException("nothing was deleted")
    ask(data_dir, "topic.delete", vhost=vhost, name=name)
    click.echo("the topic is deleted")


def _with_sizes(rows: list[dict[str, Any]], *, as_json: bool) -> list[dict[str, Any]]:
    """Return rows for `show`. A table has a dash for a size that is unknown; in JSON it is null."""
    return rows if as_json else [row | {"bytes": "–"} if row["bytes"] is None else row for row in rows]
