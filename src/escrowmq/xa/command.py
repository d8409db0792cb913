"""`python -m escrowmq.xa`: show a decision log, and recover without the program that it belongs to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from escrowmq.xa.errors import XaError
from escrowmq.xa.log import Decision, read
from escrowmq.xa.manager import TransactionManager
from escrowmq.xa.xids import BranchId

_LOG = click.argument("log", metavar="LOGFILE", type=click.Path(path_type=Path, dir_okay=False, exists=True))
_PARTICIPANT = click.option(
    *("--participant", "-p", "participants"),
    metavar="NAME=URL",
    multiple=True,
    required=True,
    help="A participant's name in the program, and its amqp://, amqps:// or postgresql:// URL. Repeatable.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def cli() -> None:
    """Show the decision log of a transaction manager, and recover without the program that it belongs to.

    \b
    Examples:
      python -m escrowmq.xa list decisions.db
      python -m escrowmq.xa recover decisions.db -p bank=postgresql://localhost/bank -p queue=amqp://localhost/
      python -m escrowmq.xa forget decisions.db shop.5f0c2e11a9d4.90b1c6f2d7e83a45 -p queue=amqp://localhost/
    """


@cli.command("list")
@_LOG
def list_decisions(log: Path) -> None:
    """Show unfinished decisions. The manager may be running.

    Prints one line for each branch: transaction, outcome, time of the decision, participant, state.

    \b
    Example:
      python -m escrowmq.xa list decisions.db
    """
    contents = read(log)
    click.echo(f"manager {contents.manager}, log {contents.identity}, opened {contents.opened} times")
    for decision in contents.decisions.values():
        for line in _lines(decision):
            click.echo(line)
    if not contents.decisions:
        click.echo("no unfinished decisions")


@cli.command()
@_LOG
@_PARTICIPANT
def recover(log: Path, participants: Sequence[str]) -> None:
    """Complete the branches in doubt at the participants according to the log. The program must not be running.

    Exits with 1 if some branches could not be completed. Keep passwords in PGPASSFILE rather than in a URL.

    \b
    Example:
      python -m escrowmq.xa recover decisions.db -p bank=postgresql://localhost/bank -p queue=amqp://localhost/
    """
    with _manager(log, participants) as manager:
        report = manager.recover()
        click.echo(str(report))
    if not report.complete:
        raise click.exceptions.Exit(1)


@cli.command()
@_LOG
@click.argument("transaction")
@_PARTICIPANT
def forget(log: Path, transaction: str, participants: Sequence[str]) -> None:
    """Drop a transaction that an operator completed, once its effects are put right. The program must not be running.

    \b
    Example:
      python -m escrowmq.xa forget decisions.db shop.5f0c2e11a9d4.90b1c6f2d7e83a45 -p queue=amqp://localhost/
    """
    with _manager(log, participants) as manager:
        manager.forget(transaction)
    click.echo(f"forgotten: {transaction}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (by default that of this process) and return its exit code."""
    try:
        code = cli.main(arguments, prog_name="python -m escrowmq.xa", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        click.echo(f"escrowmq.xa: {error.format_message()}", err=True)
        return error.exit_code
    except click.Abort:
        return 130
    except (XaError, ValueError) as error:
        click.echo(f"escrowmq.xa: {error}", err=True)
        return 1
    return code if isinstance(code, int) else 0


def _lines(decision: Decision) -> list[str]:
    when = dt.datetime.fromtimestamp(decision.decided_at, dt.UTC).isoformat(" ", "seconds")
    return [
        f"{decision.gtrid}  {decision.outcome}  {when}  {BranchId(decision.gtrid, bqual).participant}  {state.value}"
        for bqual, state in decision.branches.items()
    ]


def _manager(log: Path, participants: Sequence[str]) -> TransactionManager:
    connects = {}
    for given in participants:
        name, equals, url = given.partition("=")
        if not equals:
            raise click.UsageError(f"--participant must be NAME=URL, not {given!r}")
        connects[name] = _connect(url)
    manager = TransactionManager(read(log).manager, log)
    try:
        for name, connect in connects.items():
            manager.register(name, connect)
    except XaError:
        manager.close()
        raise
    return manager


def _connect(url: str) -> Callable[[], Any]:
    scheme = url.partition(":")[0]
    if scheme in ("amqp", "amqps"):
        from escrowmq.client import connect

        return partial(connect, url)
    if scheme in ("postgresql", "postgres"):
        try:
            import psycopg
        except ImportError as error:
            raise click.ClickException("psycopg is not installed: pip install 'escrowmq[xa]'") from error
        return partial(psycopg.connect, url)
    raise click.UsageError(f"a participant's URL must begin with amqp, amqps or postgresql, not {scheme!r}")
