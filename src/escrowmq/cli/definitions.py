"""`escrowmq definitions`: export and import the definitions of a running broker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from escrowmq import definitions as files
from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, check_vhost, data_dir_option
from escrowmq.cli.subcommands import CommandGroup

_vhost_option = click.option("--vhost", help="Only exchanges, queues, bindings, policies and limits of this one.")


@click.group(cls=CommandGroup)
def definitions() -> None:
    """Export and import users, queues and other definitions.

    The form is RabbitMQ's: virtual hosts, users with hashes of their passwords, permissions, limits, policies,
    exchanges, queues and bindings of a running broker. Messages are not among them.

    \b
    Examples:
      escrowmq definitions export --data-dir /var/lib/escrowmq > definitions.json
      escrowmq definitions import definitions.json --data-dir /var/lib/escrowmq
    """


@definitions.command("export")
@data_dir_option
@_vhost_option
@asks
def export(data_dir: Path, vhost: str | None) -> None:
    """Print the definitions, with hashes of passwords."""
    check_vhost(data_dir, vhost)
    rows = ask(data_dir, "definitions.export", vhost=vhost)
    document = files.document(rows, ask(data_dir, "status")["version"], vhost)
    click.echo(json.dumps(document, indent=2))


@definitions.command("import")
@data_dir_option
@_vhost_option
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@asks
def import_file(data_dir: Path, vhost: str | None, file: Path) -> None:
    """Import the definitions in FILE, or on standard input if it is `-`.

    Exchanges and queues that exist stay as they are. Users, permissions, limits and policies are replaced.
    """
    try:
        document = files.parsed(sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes())
        found = list(files.parts(document, vhost))
    except files.DefinitionsError as error:
        raise click.ClickException(str(error)) from error
    for part in found:
        ask(data_dir, "definitions.import", section=part.section, objects=part.objects)
    counts: dict[str, int] = {}
    for part in found:
        counts[part.section] = counts.get(part.section, 0) + len(part.objects)
    for section, count in counts.items():
        click.echo(f"{section}: {count}")
    for section, count in files.ignored(document).items():
        click.echo(f"{section}: {count} left out, which are not supported", err=True)
