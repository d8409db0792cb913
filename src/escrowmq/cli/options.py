"""Options, errors, tables and questions that the commands for a running broker share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.cli.tables import show_rows
from escrowmq.units import parse_duration

F = TypeVar("F", bound=Callable[..., Any])

DATA_DIR: Final = Path("escrowmq-data")
"""The default of the configuration, repeated because importing the configuration would slow the commands down."""


def _data_dir(context: click.Context, parameter: click.Parameter, value: Path) -> Path:
    """Return the data directory of the command line, the environment, the configuration file, or the default."""
    parent = context.parent
    # An option on the command line has precedence over a variable, also before the subcommand.
    if parent is not None and _typed(parent, "data_dir") and not _typed(context, "data_dir"):
        return Path(parent.params["data_dir"])
    file = context.params.get("config")
    if file is None or context.get_parameter_source("data_dir") is not ParameterSource.DEFAULT:
        return value
    from escrowmq.config.errors import ConfigError
    from escrowmq.config.sources import data_dir_of

    try:
        return data_dir_of(file) or value
    except ConfigError as error:
        raise click.UsageError(str(error), context) from error


def _typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def data_dir_option(command: F) -> F:
    """Decorate a command with `--data-dir`, which becomes its argument `data_dir`, and with `--config`."""

    @wraps(command)
    def wrapper(*args: Any, config: Path | None = None, **kwargs: Any) -> Any:
        return command(*args, **kwargs)

    decorated = click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        callback=_data_dir,
        default=DATA_DIR,
        show_default=True,
        envvar="ESCROWMQ_DATA_DIR",
        show_envvar=True,
        help="The data directory of the broker.",
    )(wrapper)
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        is_eager=True,
        envvar="ESCROWMQ_CONFIG",
        show_envvar=True,
        help="The broker's TOML file, for its `data_dir`.",
    )(decorated)  # type: ignore[return-value]  # the same signature


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


_HINTS: Final = {
    "this node is a standby": "; run this on the leader's machine (`escrowmq replica status` works on every node)",
    "no such user '": "; `escrowmq user list` shows those that exist",
    "no such vhost '": "; `escrowmq vhost list` shows those that exist",
}
"""Advice by the beginning of a refusal. The core does not give it, because clients get the same refusals."""


def age(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Return an option's duration, such as 90, 90s or 1h, in seconds; to be used as `callback`."""
    try:
        return parse_duration(float(value) if value.isdecimal() else value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not {error}", context, parameter) from error


def asks(command: F) -> F:
    """Decorate a command so that an AdminError becomes one line on stderr."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except AdminError as error:
            text = str(error)
            hint = next((hint for beginning, hint in _HINTS.items() if text.startswith(beginning)), "")
            raise click.ClickException(text + hint) from error

    return wrapper  # type: ignore[return-value]  # the same signature


def show(rows: Any, columns: Sequence[str], *, as_json: bool) -> None:
    """Print rows as a table with these columns, or complete as JSON."""
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        show_rows(rows, columns)


reason_option = click.option(
    "--reason", required=True, metavar="TEXT", help="The reason, which the journal keeps with the decision."
)
"""For heuristic decisions."""


def confirmed(question: str) -> bool:
    """Ask a question, and return whether the answer was yes. The end of the input counts as no. Ctrl-C aborts the
    command.
    """
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo(err=True)
        return False


def check_vhost(data_dir: Path, name: str | None) -> None:
    """Raises AdminError for a virtual host that does not exist; None stands for all of them."""
    if name is not None and name not in names(data_dir, "vhost.list"):
        raise AdminError(f"no such vhost '{name}'")


def names(data_dir: Path, command: str) -> set[str]:
    """Return the names in the list that `command` returns."""
    return {each["name"] for each in ask(data_dir, command)}
