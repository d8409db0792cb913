"""`escrowmq policy`: limits and other arguments that queues and exchanges get by their names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import F, asks, data_dir_option, json_option, show
from escrowmq.cli.subcommands import CommandGroup

_COLUMNS = ("vhost", "name", "pattern", "apply_to", "priority", "definition")


@click.group(cls=CommandGroup)
def policy() -> None:
    """Manage the policies of a running broker.

    A policy gives arguments, such as a limit, to all queues and exchanges whose names match a regular expression, also
    to those that exist. Of several that match, the one with the highest priority counts. An operator policy limits what
    queues may use, whatever policies and arguments say.

    \b
    Examples:
      escrowmq policy set short '^events\\.' '{"message-ttl": 60000, "max-length": 10000}'
      escrowmq policy set rest '' '{"alternate-exchange": "unrouted"}' --apply-to exchanges
      escrowmq policy list --vhost / --data-dir /var/lib/escrowmq
      escrowmq policy operator set most '' '{"max-length-bytes": 1000000000}'
      escrowmq policy clear short
    """


@policy.group("operator", cls=CommandGroup)
def operator_policy() -> None:
    """Manage operator policies, which limit what queues may use.

    \b
    Examples:
      escrowmq policy operator set most '^tmp' '{"expires": 3600000, "max-length": 10000}'
      escrowmq policy operator list
      escrowmq policy operator clear most
    """


_vhost_option = click.option("--vhost", default="/", show_default=True, help="The virtual host.")
_name_argument = click.argument("name")


def _set_options(command: F) -> F:
    for option in (
        click.argument("definition"),
        click.argument("pattern"),
        _name_argument,
        click.option("--priority", type=int, default=0, show_default=True, help="The highest one that matches counts."),
        _vhost_option,
        data_dir_option,
    ):
        command = option(command)
    return command


def _apply_to(default: str) -> Callable[[F], F]:
    return click.option(
        "--apply-to",
        default=default,
        show_default=True,
        type=click.Choice(["all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams"]),
        help="What the policy is for.",
    )


def _parsed(definition: str) -> dict[str, Any]:
    try:
        found = json.loads(definition)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"DEFINITION is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.UsageError("DEFINITION must be a JSON object, such as '{\"max-length\": 1000}'")
    return found


def _show(found: list[dict[str, Any]], *, as_json: bool) -> None:
    rows = found if as_json else [row | {"definition": json.dumps(row["definition"])} for row in found]
    show(rows, _COLUMNS, as_json=as_json)


def _list_options(command: F) -> F:
    command = click.option("--vhost", help="Only policies of this virtual host.")(command)
    return data_dir_option(json_option(command))


def _add_commands(group: click.Group, operations: str, noun: str, effect: str, apply_to: str) -> None:
    """Add the commands of policies, or those of operator policies, to their group. `operations` is the beginning of the
    names of the broker's operations.
    """

    @group.command("list", help=f"List {noun.replace('policy', 'policies')}.")
    @_list_options
    @asks
    def list_(data_dir: Path, as_json: bool, vhost: str | None) -> None:
        _show(ask(data_dir, f"{operations}.list", vhost=vhost), as_json=as_json)

    @group.command("set", help=f"Set the {noun} NAME: {effect} for names in which PATTERN is found.")
    @_set_options
    @_apply_to(apply_to)
    @asks
    def set_(data_dir: Path, definition: str, **given: Any) -> None:
        ask(data_dir, f"{operations}.set", definition=_parsed(definition), **given)

    @group.command("clear", help=f"Remove the {noun} NAME.")
    @data_dir_option
    @_vhost_option
    @_name_argument
    @asks
    def clear(data_dir: Path, vhost: str, name: str) -> None:
        ask(data_dir, f"{operations}.clear", vhost=vhost, name=name)


_add_commands(policy, "policy", "policy", "what DEFINITION, in JSON, says holds", "all")
_add_commands(
    operator_policy, "operator_policy", "operator policy", "the limits in DEFINITION, in JSON, hold", "queues"
)
