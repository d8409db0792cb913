"""`escrowmq user`: the users of a running broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import click

from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.cli.options import F, asks, confirmed, data_dir_option, json_option, names, show
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.text import printable

_TAGS: Final = ("administrator", "monitoring", "management", "policymaker")
"""Those that give rights."""


@click.group(cls=CommandGroup)
def user() -> None:
    """Manage users of a running broker.

    A change is on disk when its command returns.

    \b
    Examples:
      escrowmq user add alice --tag administrator --data-dir /var/lib/escrowmq
      pass show broker/alice | escrowmq user password alice --password-stdin --data-dir /var/lib/escrowmq
      escrowmq user list --json --data-dir /var/lib/escrowmq
    """


def password_options(command: F) -> F:
    """The source of a password: the option or stdin; a prompt if neither is given."""
    command = click.option(
        "--password-stdin", is_flag=True, help="Read the password from stdin, which must be one line."
    )(command)
    return click.option(
        "--password", help="The password. Other users of this machine can see it while the command runs."
    )(command)


def _password(password: str | None, *, stdin: bool, none: bool, check: Callable[[], None]) -> str | None:
    """Return the password according to the options. `check` is called before the prompt, and may refuse."""
    if (password is not None) + stdin + none > 1:
        raise click.UsageError("--password, --password-stdin and --no-password exclude each other")
    if none:
        return None
    if stdin:
        password = sys.stdin.readline().rstrip("\r\n")
        if not sys.stdin.isatty() and sys.stdin.read(1):
            raise click.UsageError("stdin has more than one line; a password is a single line")
    elif password is None:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to prompt for the password: give --password-stdin")
        check()
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    if not password:
        raise click.UsageError("the password is empty")
    return password


def _check_exists(data_dir: Path, name: str) -> None:
    """Raises AdminError for an unknown user, who is refused before any question."""
    if name not in names(data_dir, "user.list"):
        raise AdminError(f"no such user '{printable(name)}'")


def warn_of_unknown(tags: Iterable[str]) -> None:
    """Warn of tags that may be mistyped. They are kept, since RabbitMQ admits any, for plugins and scripts."""
    for tag in tags:
        if tag not in _TAGS:
            click.echo(
                f"warning: the broker knows no tag '{printable(tag)}', so it gives no rights; tags that do: "
                f"{', '.join(_TAGS)}",
                err=True,
            )


@user.command("list")
@data_dir_option
@json_option
@asks
def list_users(data_dir: Path, as_json: bool) -> None:
    """List users."""
    columns = ("name", "tags", "password", "max_connections", "max_channels", "access_keys")
    show(ask(data_dir, "user.list"), columns, as_json=as_json)


@user.command("add")
@data_dir_option
@click.argument("name")
@password_options
@click.option("--no-password", is_flag=True, help="Allow the user to log in with a client certificate only.")
@click.option("--tag", "tags", multiple=True, help="A tag. The option may be repeated.")
@asks
def add_user(
    data_dir: Path, name: str, password: str | None, password_stdin: bool, no_password: bool, tags: Iterable[str]
) -> None:
    """Add a user. The user has no permissions until `escrowmq permission set`."""

    def check() -> None:
        if name in names(data_dir, "user.list"):
            raise click.ClickException(f"user '{name}' already exists")

    warn_of_unknown(tags)
    secret = _password(password, stdin=password_stdin, none=no_password, check=check)
    ask(data_dir, "user.add", name=name, password=secret, tags=list(tags))


@user.command("delete")
@data_dir_option
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks
def delete_user(data_dir: Path, name: str, yes: bool) -> None:
    """Delete a user.

    The user's permissions and access keys are deleted, too, and the user's connections are closed.
    """
    if not yes:
        _check_exists(data_dir, name)
        if not confirmed(f"Delete user '{printable(name)}' with the user's permissions?"):
            raise click.ClickException("nothing was deleted")
    ask(data_dir, "user.delete", name=name)


@user.command("password")
@data_dir_option
@click.argument("name")
@password_options
@click.option("--no-password", is_flag=True, help="Allow the user to log in with a client certificate only.")
@asks
def change_password(data_dir: Path, name: str, password: str | None, password_stdin: bool, no_password: bool) -> None:
    """Change a user's password. Open connections stay open."""
    secret = _password(password, stdin=password_stdin, none=no_password, check=lambda: _check_exists(data_dir, name))
    ask(data_dir, "user.password", name=name, password=secret)


@user.command("tags")
@data_dir_option
@click.argument("name")
@click.argument("tags", nargs=-1)
@asks
def set_tags(data_dir: Path, name: str, tags: Iterable[str]) -> None:
    """Set a user's tags. Without TAGS, the user has none."""
    warn_of_unknown(tags)
    ask(data_dir, "user.tags", name=name, tags=list(tags))


@user.command("limits")
@data_dir_option
@click.argument("name")
@click.option("--max-connections", type=click.IntRange(min=0), help="The number of connections; without it, no limit.")
@click.option("--max-channels", type=click.IntRange(min=0), help="The number of channels; without it, no limit.")
@asks
def set_user_limits(data_dir: Path, name: str, max_connections: int | None, max_channels: int | None) -> None:
    """Set a user's limits for open connections and channels. Without an option, there is no such limit."""
    ask(data_dir, "user.limits", name=name, max_connections=max_connections, max_channels=max_channels)


@user.command("add-key")
@data_dir_option
@click.argument("name")
@click.option("--key", default="", help="The access key; without it, one is made up.")
@json_option
@asks
def add_key(data_dir: Path, name: str, key: str, as_json: bool) -> None:
    """Give a user an access key, and print it with its secret key.

    Clients of RocketMQ sign their requests with the secret key.
    """
    show([ask(data_dir, "user.key.add", name=name, key=key)], ("access_key", "secret_key"), as_json=as_json)


@user.command("delete-key")
@data_dir_option
@click.argument("name")
@click.argument("key")
@asks
def delete_key(data_dir: Path, name: str, key: str) -> None:
    """Delete an access key of a user.

    The user's connections are closed.
    """
    ask(data_dir, "user.key.delete", name=name, key=key)
