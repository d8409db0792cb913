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


@policy.command("list")
@_list_options
@asks
def list_policies(data_dir: Path, as_json: bool, vhost: str | None) -> None:
    """List policies."""
    _show(ask(data_dir, "policy.list", vhost=vhost), as_json=as_json)


@policy.command("set")
@_set_options
@_apply_to("all")
@asks
def set_policy(
    data_dir: Path, vhost: str, name: str, pattern: str, definition: str, priority: int, apply_to: str
) -> None:
    """Set the policy NAME: what DEFINITION, in JSON, says holds for names in which PATTERN is found."""
    given = _parsed(definition)
    ask(
        data_dir,
        "policy.set",
        vhost=vhost,
        name=name,
        pattern=pattern,
        definition=given,
        priority=priority,
        apply_to=apply_to,
    )


@policy.command("clear")
@data_dir_option
@_vhost_option
@_name_argument
@asks
def clear_policy(data_dir: Path, vhost: str, name: str) -> None:
    """Remove the policy NAME."""
    ask(data_dir, "policy.clear", vhost=vhost, name=name)


@operator_policy.command("list")
@_list_options
@asks
def list_operator_policies(data_dir: Path, as_json: bool, vhost: str | None) -> None:
    """List operator policies."""
    _show(ask(data_dir, "operator_policy.list", vhost=vhost), as_json=as_json)


@operator_policy.command("set")
@_set_options
@_apply_to("queues")
@asks
def set_operator_policy(
    data_dir: Path, vhost: str, name: str, pattern: str, definition: str, priority: int, apply_to: str
) -> None:
    """Set the operator policy NAME: the limits in DEFINITION, in JSON, hold for names in which PATTERN is found."""
    given = _parsed(definition)
    ask(
        data_dir,
        "operator_policy.set",
        vhost=vhost,
        name=name,
        pattern=pattern,
        definition=given,
        priority=priority,
        apply_to=apply_to,
    )


@operator_policy.command("clear")
@data_dir_option
@_vhost_option
@_name_argument
@asks
def clear_operator_policy(data_dir: Path, vhost: str, name: str) -> None:
    """Remove the operator policy NAME."""
    ask(data_dir, "operator_policy.clear", vhost=vhost, name=name)
