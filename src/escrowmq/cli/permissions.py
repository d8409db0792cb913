"""`escrowmq permission`: the rights of users on virtual hosts."""

from __future__ import annotations

from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import F, asks, data_dir_option, json_option, show
from escrowmq.cli.subcommands import CommandGroup


@click.group(cls=CommandGroup)
def permission() -> None:
    """Manage the permissions of users on virtual hosts.

    As in RabbitMQ, a permission is a regular expression that is searched for in the names of queues and exchanges.
    Where it is found, `--configure` allows the user to declare and delete, `--write` to publish to an exchange and to
    bind to a queue or exchange, and `--read` to consume, get and purge, and to bind from an exchange.

    \b
    Examples:
      escrowmq permission set alice / --configure '^alice-' --write '.*' --read '^alice-'
      escrowmq permission list --user alice --data-dir /var/lib/escrowmq
      escrowmq permission topic set alice / amq.topic --write '^alice\\.' --read '.*'
    """


vhost_argument = click.argument("vhost")
user_argument = click.argument("user")


def filter_options(command: F) -> F:
    """Filters of a list."""
    command = click.option("--vhost", help="Only permissions on this virtual host.")(command)
    return click.option("--user", help="Only permissions of this user.")(command)


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
@click.option("--configure", required=True, help="Names that the user may declare and delete; '' allows none.")
@click.option("--write", required=True, help="Names that the user may publish and bind to; '' allows none.")
@click.option("--read", required=True, help="Names that the user may consume, get and bind from; '' allows none.")
@asks
def set_permission(data_dir: Path, user: str, vhost: str, configure: str, write: str, read: str) -> None:
    """Set the permissions of USER on VHOST. They replace earlier ones."""
    ask(data_dir, "permission.set", user=user, vhost=vhost, configure=configure, write=write, read=read)


@permission.command("clear")
@data_dir_option
@user_argument
@vhost_argument
@asks
def clear_permission(data_dir: Path, user: str, vhost: str) -> None:
    """Remove all permissions of USER on VHOST."""
    ask(data_dir, "permission.clear", user=user, vhost=vhost)


@permission.group("topic")
def topic() -> None:
    """Restrict the routing keys on topic exchanges. Without a topic permission, all keys are allowed."""


@topic.command("list")
@data_dir_option
@json_option
@filter_options
@asks
def list_topic_permissions(data_dir: Path, as_json: bool, user: str | None, vhost: str | None) -> None:
    """List topic permissions."""
    found = ask(data_dir, "topic_permission.list", user=user, vhost=vhost)
    show(found, ("user", "vhost", "exchange", "write", "read"), as_json=as_json)


@topic.command("set")
@data_dir_option
@user_argument
@vhost_argument
@click.argument("exchange")
@click.option("--write", required=True, help="Routing keys that the user may publish with, as a regular expression.")
@click.option("--read", required=True, help="Routing keys that the user may bind with, as a regular expression.")
@asks
def set_topic_permission(data_dir: Path, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
    """Set the routing keys that USER may use on EXCHANGE. {username} and {vhost} stand for the names."""
    ask(data_dir, "topic_permission.set", user=user, vhost=vhost, exchange=exchange, write=write, read=read)


@topic.command("clear")
@data_dir_option
@user_argument
@vhost_argument
@click.argument("exchange", required=False)
@asks
def clear_topic_permission(data_dir: Path, user: str, vhost: str, exchange: str | None) -> None:
    """Lift the restriction on EXCHANGE; on all exchanges without EXCHANGE."""
    ask(data_dir, "topic_permission.clear", user=user, vhost=vhost, exchange=exchange)
