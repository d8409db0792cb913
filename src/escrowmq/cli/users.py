"""Commands that talk to a running broker through its admin socket."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import F, asks, confirmed, data_dir_option, json_option, show
from escrowmq.cli.tables import show_connections, show_queues, show_status, size
from escrowmq.text import printable


@click.command()
@data_dir_option
@json_option
@asks
def status(data_dir: Path, as_json: bool) -> None:
    """Show what a running broker is doing: load, journal, memory, alarms.

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


@click.group(invoke_without_command=True)
@data_dir_option
@json_option
@click.pass_context
@asks
def connections(ctx: click.Context, data_dir: Path, as_json: bool) -> None:
    """List the clients' connections, or close one.

    \b
    Examples:
      escrowmq connections --data-dir /var/lib/escrowmq
      escrowmq connections close 10.0.0.7:51234 --reason maintenance --data-dir /var/lib/escrowmq
    """
    if ctx.invoked_subcommand is None:
        found = ask(data_dir, "connection.list")
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            show_connections(found)


@connections.command("close")
@data_dir_option
@click.argument("peer", metavar="HOST:PORT")
@click.option("--reason", default="closed by an operator", show_default=True, help="What the client is told.")
@asks
def close_connection(data_dir: Path, peer: str, reason: str) -> None:
    """Close the connection that comes from HOST:PORT. What it had not settled goes back to its queues."""
    ask(data_dir, "connection.close", peer=peer, reason=reason)


# -- users


@click.group()
def user() -> None:
    """Manage users of a running broker.

    A change is on disk when the command returns.

    \b
    Examples:
      escrowmq user add alice --tag administrator --data-dir /var/lib/escrowmq
      pass show broker/alice | escrowmq user password alice --password-stdin --data-dir /var/lib/escrowmq
      escrowmq user list --json --data-dir /var/lib/escrowmq
    """


def password_options(command: F) -> F:
    """Where a password comes from: the option, stdin, else a prompt."""
    command = click.option("--password-stdin", is_flag=True, help="Read the password from stdin, one line.")(command)
    return click.option("--password", help="The password; other users of this machine can see it while we run.")(
        command
    )


def _password(password: str | None, *, stdin: bool, none: bool, check: Callable[[], None]) -> str | None:
    """The password that the options say; `check` may refuse before a person is asked for one."""
    if (password is not None) + stdin + none > 1:
        raise click.UsageError("--password, --password-stdin and --no-password exclude each other")
    if none:
        return None
    if stdin:
        password = sys.stdin.readline().rstrip("\r\n")
        if not sys.stdin.isatty() and sys.stdin.read(1):
            raise click.UsageError("stdin holds more than one line; a password is one")
    elif password is None:
        if not sys.stdin.isatty():
            raise click.UsageError("no terminal to ask for the password: give --password-stdin")
        check()
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    if not password:
        raise click.UsageError("the password is empty")
    return password


def _names(data_dir: Path, command: str) -> set[str]:
    return {each["name"] for each in ask(data_dir, command)}


@user.command("list")
@data_dir_option
@json_option
@asks
def list_users(data_dir: Path, as_json: bool) -> None:
    """List users."""
    show(ask(data_dir, "user.list"), ("name", "tags", "password"), as_json=as_json)


@user.command("add")
@data_dir_option
@click.argument("name")
@password_options
@click.option("--no-password", is_flag=True, help="The user comes with a client certificate only.")
@click.option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
@asks
def add_user(
    data_dir: Path, name: str, password: str | None, password_stdin: bool, no_password: bool, tags: Iterable[str]
) -> None:
    """Add a user, who may do nothing until `escrowmq permission set`."""

    def check() -> None:
        if name in _names(data_dir, "user.list"):
            raise click.ClickException(f"user '{name}' already exists")

    secret = _password(password, stdin=password_stdin, none=no_password, check=check)
    ask(data_dir, "user.add", name=name, password=secret, tags=list(tags))


@user.command("delete")
@data_dir_option
@click.argument("name")
@asks
def delete_user(data_dir: Path, name: str) -> None:
    """Delete a user with all permissions, and close the user's connections."""
    ask(data_dir, "user.delete", name=name)


@user.command("password")
@data_dir_option
@click.argument("name")
@password_options
@click.option("--no-password", is_flag=True, help="The user comes with a client certificate only.")
@asks
def change_password(data_dir: Path, name: str, password: str | None, password_stdin: bool, no_password: bool) -> None:
    """Change a user's password. Connections that are open stay."""

    def check() -> None:
        if name not in _names(data_dir, "user.list"):
            raise click.ClickException(f"no such user '{name}'")

    secret = _password(password, stdin=password_stdin, none=no_password, check=check)
    ask(data_dir, "user.password", name=name, password=secret)


@user.command("tags")
@data_dir_option
@click.argument("name")
@click.argument("tags", nargs=-1)
@asks
def set_tags(data_dir: Path, name: str, tags: Iterable[str]) -> None:
    """Set a user's tags; none clears them."""
    ask(data_dir, "user.tags", name=name, tags=list(tags))


# -- virtual hosts


@click.group()
def vhost() -> None:
    """Manage virtual hosts of a running broker.

    \b
    Examples:
      escrowmq vhost add orders --data-dir /var/lib/escrowmq
      escrowmq vhost list --data-dir /var/lib/escrowmq
    """


@vhost.command("list")
@data_dir_option
@json_option
@asks
def list_vhosts(data_dir: Path, as_json: bool) -> None:
    """List virtual hosts."""
    show(ask(data_dir, "vhost.list"), ("name", "queues"), as_json=as_json)


@vhost.command("add")
@data_dir_option
@click.argument("name")
@asks
def add_vhost(data_dir: Path, name: str) -> None:
    """Add a virtual host. Nobody may use it until `escrowmq permission set`."""
    ask(data_dir, "vhost.add", name=name)


@vhost.command("delete")
@data_dir_option
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete_vhost(data_dir: Path, name: str, yes: bool) -> None:
    """Delete a virtual host with its queues, their messages, exchanges and permissions."""
    if not yes:
        if name not in _names(data_dir, "vhost.list"):
            raise click.ClickException(f"no such vhost '{name}'")
        if not confirmed(f"Delete vhost '{printable(name)}' with everything in it?"):
            raise click.ClickException("aborted")
    ask(data_dir, "vhost.delete", name=name)


# -- permissions


@click.group()
def permission() -> None:
    """Manage who may do what on a virtual host.

    Permissions are regular expressions for names of queues and exchanges, as in RabbitMQ: a user may configure
    (declare, delete), write to (publish, bind), read from (consume, get, purge) what they are found in.

    The commands take `--data-dir`, too: the folder that the broker was started with.

    \b
    Examples:
      escrowmq permission set alice / --configure '^alice-' --write '.*' --read '^alice-'
      escrowmq permission list --user alice --data-dir /var/lib/escrowmq
      escrowmq permission topic set alice / amq.topic --write '^alice\\.' --read '.*'
    """


vhost_argument = click.argument("vhost")
user_argument = click.argument("user")


def filter_options(command: F) -> F:
    """Which of a list are shown."""
    command = click.option("--vhost", help="Only those on this virtual host.")(command)
    return click.option("--user", help="Only those of this user.")(command)


@permission.command("list")
@data_dir_option
@json_option
@filter_options
@asks
def list_permissions(data_dir: Path, as_json: bool, user: str | None, vhost: str | None) -> None:
    """List permissions."""
    found = ask(data_dir, "permission.list", user=user, vhost=vhost)
    show(found, ("user", "vhost", "configure", "write", "read"), as_json=as_json)


@permission.command("set")
@data_dir_option
@user_argument
@vhost_argument
@click.option("--configure", required=True, help="What the user may declare and delete; '' is nothing.")
@click.option("--write", required=True, help="What the user may publish to; '' is nothing.")
@click.option("--read", required=True, help="What the user may consume from; '' is nothing.")
@asks
def set_permission(data_dir: Path, user: str, vhost: str, configure: str, write: str, read: str) -> None:
    """Set the permissions of USER on VHOST, in place of those that were there."""
    ask(data_dir, "permission.set", user=user, vhost=vhost, configure=configure, write=write, read=read)


@permission.command("clear")
@data_dir_option
@user_argument
@vhost_argument
@asks
def clear_permission(data_dir: Path, user: str, vhost: str) -> None:
    """Take all permissions of USER on VHOST away."""
    ask(data_dir, "permission.clear", user=user, vhost=vhost)


@permission.group("topic")
def topic() -> None:
    """Restrict the routing keys on topic exchanges. Where nothing is set, all keys are allowed."""


@topic.command("list")
@data_dir_option
@json_option
@filter_options
@asks
def list_topic_permissions(data_dir: Path, as_json: bool, user: str | None, vhost: str | None) -> None:
    """List topic permissions."""
    found = ask(data_dir, "topic.list", user=user, vhost=vhost)
    show(found, ("user", "vhost", "exchange", "write", "read"), as_json=as_json)


@topic.command("set")
@data_dir_option
@user_argument
@vhost_argument
@click.argument("exchange")
@click.option("--write", required=True, help="Routing keys that the user may publish with.")
@click.option("--read", required=True, help="Routing keys that the user may bind with.")
@asks
def set_topic_permission(data_dir: Path, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
    """Set the routing keys that USER may use on EXCHANGE; {username} and {vhost} stand for themselves."""
    ask(data_dir, "topic.set", user=user, vhost=vhost, exchange=exchange, write=write, read=read)


@topic.command("clear")
@data_dir_option
@user_argument
@vhost_argument
@click.argument("exchange", required=False)
@asks
def clear_topic_permission(data_dir: Path, user: str, vhost: str, exchange: str | None) -> None:
    """Lift the restriction on EXCHANGE, or on all."""
    ask(data_dir, "topic.clear", user=user, vhost=vhost, exchange=exchange)


# -- the journal


@click.group()
def journal() -> None:
    """Look after the journal of a running broker; it does so by itself, too.

    \b
    Example:
      escrowmq journal snapshot --data-dir /var/lib/escrowmq
    """


@journal.command("snapshot")
@data_dir_option
@asks
def take_snapshot(data_dir: Path) -> None:
    """Take a snapshot now, so that the next start has little to read."""
    ask(data_dir, "journal.snapshot")
    click.echo(_journal_line(ask(data_dir, "status")["journal"]))


@journal.command("compact")
@data_dir_option
@asks
def compact(data_dir: Path) -> None:
    """Copy what lives in segments that are partly dead, so that these can go; then take a snapshot."""
    before = ask(data_dir, "status")["journal"]
    ask(data_dir, "journal.compact")
    after = ask(data_dir, "status")["journal"]
    click.echo(
        f"compacted: {size(before['disk_bytes'])} in {_segments(before)} before, "
        f"{size(after['disk_bytes'])} in {_segments(after)} now"
    )
    click.echo(_journal_line(after))


def _journal_line(stats: dict[str, Any]) -> str:
    return (
        f"snapshot: in force at LSN {stats['snapshot_lsn']:#x}; "
        f"the journal takes {size(stats['disk_bytes'])} in {_segments(stats)}"
    )


def _segments(stats: dict[str, Any]) -> str:
    return f"{stats['segments']} segment{'' if stats['segments'] == 1 else 's'}"
