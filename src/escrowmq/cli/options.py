"""What the commands that talk to a running broker have in common: options, refusals, tables, questions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.cli.tables import show_rows

F = TypeVar("F", bound=Callable[..., Any])

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("escrowmq-data"),
    show_default=True,
    help="The folder that the broker was started with.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def asks(command: F) -> F:
    """Decorate a command: what the broker refuses, or that there is none, becomes one line."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except AdminError as error:
            raise click.ClickException(str(error)) from error

    return wrapper  # type: ignore[return-value]  # the same signature


def show(rows: Any, columns: Sequence[str], *, as_json: bool) -> None:
    """Print rows as a table of these columns, or everything of them as JSON."""
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        show_rows(rows, columns)


def confirmed(question: str) -> bool:
    """Whether it was answered with yes; the end of the input is a no, Ctrl-C goes on as what it is."""
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo(err=True)
        return False


def names(data_dir: Path, command: str) -> set[str]:
    """The names in the list that `command` returns."""
    return {each["name"] for each in ask(data_dir, command)}
