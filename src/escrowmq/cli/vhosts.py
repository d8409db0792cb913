"""`escrowmq vhost`: the virtual hosts of a running broker."""

from __future__ import annotations

from pathlib import Path

import click

from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.cli.options import asks, confirmed, data_dir_option, json_option, names, show
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.text import printable


@click.group(cls=CommandGroup)
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
    show(ask(data_dir, "vhost.list"), ("name", "queues", "max_connections", "max_queues"), as_json=as_json)


@vhost.command("add")
@data_dir_option
@click.argument("name")
@asks
def add_vhost(data_dir: Path, name: str) -> None:
    """Add a virtual host. No user may use it until `escrowmq permission set`."""
    ask(data_dir, "vhost.add", name=name)


@vhost.command("delete")
@data_dir_option
@click.argument("name")
@click.option("--force", is_flag=True, help="Also roll back transaction branches in doubt, and forget decided ones.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks
def delete_vhost(data_dir: Path, name: str, force: bool, yes: bool) -> None:
    """Delete a virtual host with all in it.

    Its queues, messages, exchanges and permissions are deleted, and its connections are closed. Transaction branches
    and the progress of applications are deleted, too. The command is refused while branches are in doubt, since
    their transaction managers may have committed the other participants, or decided by an operator and not forgotten.
    """
    if not yes:
        if name not in names(data_dir, "vhost.list"):
            raise AdminError(f"no such vhost '{name}'")
        if not confirmed(f"Delete vhost '{printable(name)}' with everything in it?"):
            raise click.ClickException("nothing was deleted")
    ask(data_dir, "vhost.delete", name=name, force=force)


@vhost.command("limits")
@data_dir_option
@click.argument("name")
@click.option("--max-connections", type=click.IntRange(min=0), help="The number of connections; without it, no limit.")
@click.option("--max-queues", type=click.IntRange(min=0), help="The number of queues; without it, no limit.")
@asks
def set_vhost_limits(data_dir: Path, name: str, max_connections: int | None, max_queues: int | None) -> None:
    """Set a virtual host's limits for connections and queues. Without an option, there is no such limit."""
    ask(data_dir, "vhost.limits", name=name, max_connections=max_connections, max_queues=max_queues)
