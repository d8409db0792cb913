"""The command line: `escrowmq COMMAND`.

A command's module is imported when the command is called, so that `escrowmq --help` answers at once. A foreseeable
error is one line on stderr. The exit code is 2 for an invalid command line or configuration, 1 for any other failure,
130 after Ctrl-C, and 141 if the reader of the output closed it (`… | head`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import click

from escrowmq import __version__
from escrowmq.cli.subcommands import CommandGroup

USAGE = 2
FAILURE = 1
INTERRUPTED = 130
UNREAD = 141
"""The reader of the output closed it. SIGPIPE would have ended the process with the same code."""


class Mount(NamedTuple):
    """The module and the name of a command, and its line in `escrowmq --help`."""

    module: str
    attribute: str
    summary: str


COMMANDS: dict[str, Mount] = {
    "serve": Mount("escrowmq.cli.serve", "serve", "Run the broker in the foreground."),
    "status": Mount(
        "escrowmq.cli.status",
        "status",
        "Show the state of a running broker: load, journal, memory, alarms.",
    ),
    "queues": Mount("escrowmq.cli.queues", "queues", "List queues with the numbers of their messages."),
    "holds": Mount(
        "escrowmq.cli.holds",
        "holds",
        "List the messages that groups of bulk readers hold, or release them.",
    ),
    "links": Mount(
        "escrowmq.cli.links",
        "links",
        "List AMQP 1.0 links with their unsettled deliveries, release or end them.",
    ),
    "topic": Mount("escrowmq.cli.topics", "topic", "Manage the topics of a running broker."),
    "group": Mount("escrowmq.cli.groups", "group", "Manage the consumer groups of a running broker."),
    "replica": Mount(
        "escrowmq.cli.replica", "replica", "Show which node leads on a replicated log, or let another one lead."
    ),
    "connections": Mount("escrowmq.cli.connections", "connections", "List client connections, or close one."),
    "events": Mount("escrowmq.cli.events", "events", "Show what happens in a running broker, until Ctrl-C."),
    "user": Mount("escrowmq.cli.users", "user", "Manage users of a running broker."),
    "vhost": Mount("escrowmq.cli.vhosts", "vhost", "Manage virtual hosts of a running broker."),
    "permission": Mount("escrowmq.cli.permissions", "permission", "Manage the permissions of users on virtual hosts."),
    "policy": Mount("escrowmq.cli.policies", "policy", "Manage the policies of a running broker."),
    "tx": Mount(
        "escrowmq.cli.transactions",
        "tx",
        "Show the transaction branches (XA) of a running broker, and decide those in doubt.",
    ),
    "half": Mount(
        "escrowmq.cli.half",
        "half",
        "Show half messages, and decide those that no producer decides.",
    ),
    "progress": Mount(
        "escrowmq.cli.progress",
        "progress",
        "Manage the progress of applications, such as Spark queries.",
    ),
    "journal": Mount(
        "escrowmq.cli.journal",
        "journal",
        "Snapshot or compact the journal of a running broker; both also happen automatically.",
    ),
    "backup": Mount("escrowmq.cli.backup", "backup", "Copy the journal of a broker to DIR, or keep a copy up to date."),
    "restore": Mount(
        "escrowmq.cli.backup", "restore", "Make a data directory from the backup in DIR, or check a backup."
    ),
    "definitions": Mount(
        "escrowmq.cli.definitions", "definitions", "Export and import users, queues and other definitions."
    ),
    "inspect": Mount("escrowmq.inspection.command", "inspect", "Show and check the contents of a journal."),
    "audit": Mount(
        "escrowmq.pipeline.command",
        "audit",
        "Check the journal against the broker's guarantees, and report every violation.",
    ),
    "perf": Mount(
        "escrowmq.perf.command",
        "perf",
        "Load a broker by AMQP 0-9-1, 0-10 or 1.0, or by a protocol of RocketMQ, and measure rates and latency.",
    ),
}


class LazyGroup(CommandGroup):
    """A group that imports a command when it is called. The help of the group imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        mount = COMMANDS.get(cmd_name)
        if mount is None:
            return None
        command = getattr(import_module(mount.module), mount.attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The interpreter would otherwise report the unwritten output when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(UNREAD)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, mount.summary) for name, mount in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def cli() -> None:
    """EscrowMQ, a transactional message broker.

    \b
    Examples:
      escrowmq serve --data-dir /var/lib/escrowmq --listen 127.0.0.1:5672
      escrowmq perf --url amqp://guest:guest@127.0.0.1:5672/ --confirms
      escrowmq inspect /var/lib/escrowmq

    `escrowmq COMMAND --help` explains a command.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's) and return its exit code."""
    try:
        code = cli.main(arguments, prog_name="escrowmq", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "escrowmq"
        return _fail(USAGE, f"{error.format_message().rstrip('.')} (see {command} --help)")
    except click.ClickException as error:
        return _fail(error.exit_code, error.format_message())
    except click.Abort:
        return INTERRUPTED
    except OSError as error:
        return _fail(FAILURE, f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
    return code if isinstance(code, int) else 0


def _fail(code: int, message: str) -> int:
    from escrowmq.text import printable

    for line in message.split("\n"):
        click.echo(f"escrowmq: {printable(line)}", err=True)
    return code
