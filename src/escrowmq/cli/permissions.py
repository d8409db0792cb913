"""`escrowmq permission`: the rights of users on virtual hosts."""

from __future__ import annotations

from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import F, asks, data_dir_option, json_option, show


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
