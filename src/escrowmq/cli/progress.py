"""`escrowmq progress`: the progress of applications that decide global transactions."""

from __future__ import annotations

from pathlib import Path

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, confirmed, data_dir_option, json_option, show
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.text import printable

_vhost_option = click.option("--vhost", default="/", show_default=True, help="The application's virtual host.")


@click.group(cls=CommandGroup)
def progress() -> None:
    """Manage the progress of applications, such as Spark queries.

    The broker remembers the last epoch that an application has decided, and decides no epoch twice. Only the user that
    decided first, and administrators, may decide for the application.

    \b
    Examples:
      escrowmq progress list --data-dir /var/lib/escrowmq
      escrowmq progress assign orders-to-lake spark --data-dir /var/lib/escrowmq
    """


@progress.command("list")
@data_dir_option
@json_option
@asks
def list_progress(data_dir: Path, as_json: bool) -> None:
    """List applications with the last epoch that was decided and their owner."""
    show(ask(data_dir, "progress.list"), ("vhost", "application", "epoch", "user"), as_json=as_json)


@progress.command("assign")
@data_dir_option
@click.argument("application")
@click.argument("user")
@_vhost_option
@asks
def assign(data_dir: Path, application: str, user: str, vhost: str) -> None:
    """Give the progress of APPLICATION to USER. The epoch stays."""
    ask(data_dir, "progress.assign", vhost=vhost, application=application, user=user)


@progress.command("reset")
@data_dir_option
@click.argument("application")
@_vhost_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks
def reset(data_dir: Path, application: str, vhost: str, yes: bool) -> None:
    """Forget the progress of APPLICATION and its owner.

    Stop the application first. An epoch that it repeats afterwards is decided again, so its messages take effect a
    second time unless the application starts from the beginning.
    """
    if not yes and not confirmed(f"Forget the progress of application '{printable(application)}'?"):
        raise click.ClickException("nothing was reset")
    epoch = ask(data_dir, "progress.reset", vhost=vhost, application=application)
    click.echo("no epoch had been decided" if epoch is None else f"the last decided epoch was {epoch}")
