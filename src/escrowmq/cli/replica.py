"""`escrowmq replica`: nodes whose journal is on a replicated log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.cli.options import asks, data_dir_option, json_option
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.journal.errors import JournalError
from escrowmq.text import size

_ASKED_SECONDS: Final = 6.0
"""A node asks the engine every five seconds, and waits ten seconds for the answer."""
_TAKE_OVER_SECONDS: Final = 15.0
"""How long a hand-over waits for the next leader. The lease of a node that vanishes meanwhile is shorter."""
_PAUSE: Final = 0.05


@click.group(cls=CommandGroup)
def replica() -> None:
    """Show which node leads on a replicated log, or let another one lead.

    \b
    Examples:
      escrowmq replica status --data-dir /var/lib/escrowmq
      escrowmq replica handover --data-dir /var/lib/escrowmq
      escrowmq replica detach --data-dir /var/lib/escrowmq
    """


@replica.command()
@data_dir_option
@json_option
@asks
def status(data_dir: Path, as_json: bool) -> None:
    """Show who leads, and how far the node of a data directory follows.

    \b
    Examples:
      escrowmq replica status --data-dir /var/lib/escrowmq
      escrowmq replica status --data-dir /var/lib/escrowmq --json | jq .leader
    """
    found = ask(data_dir, "replica.status")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for line in _lines(found):
        click.echo(line)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"node       {found['node']} ({found['role']})"
    if found["leader"]:
        yield f"leader     {found['leader']} {found['leader_url']} since epoch {found['epoch']}"
    else:
        yield "leader     none that this node knows of"
    if found["reading"]:
        yield "reading    this node still reads the replicated log, and cannot take over before it has read it"
    if found["reading"] and not found["lsn"]:
        yield "journal    not compared with the log yet; `escrowmq inspect` shows what this node has"
    else:
        yield f"journal    up to LSN {found['lsn']:#x}, position {found['position']} of the log"
    if found.get("silent"):
        yield "silent     the replicated log does not answer, so clients wait, and what is shown here may be old"
    if found["fault"]:
        yield f"fault      {found['fault']}"
    engine = found["engine"]
    if not engine["reachable"]:
        reach = f"does not answer: {engine['fault']}" if engine["fault"] else "has not answered yet"
    elif engine["answered_seconds"] > _ASKED_SECONDS:
        reach = f"last answered {_age(engine['answered_seconds'])} ago"
    else:
        reach = "reachable"
    copies = f", {engine['in_sync']} of {engine['replicas']} replicas in sync, led by {engine['leader'] or 'none'}"
    yield f"engine     {engine['engine'] or 'unknown'} ({reach}){copies if engine['reachable'] else ''}"
    if engine["checked_seconds"] is None:
        yield "settings   not checked yet"
    else:
        checked = f"checked {_age(engine['checked_seconds'])} ago"
        yield f"settings   {'; '.join(engine['wrong_settings']) or 'right'}, {checked}"
    for each in found["nodes"]:
        behind = f"{size(each['behind_bytes'])} and {_age(each['behind_seconds'])} behind"
        ago = f" {_age(each['reported_seconds'])} ago" if each["reported_seconds"] >= 1 else ""
        yield f"{each['role']:10} {each['node']} {each['url']} at LSN {each['lsn']:#x}{ago}, {behind}"
    for each in found["take_overs"]:
        seen = datetime.fromtimestamp(each["seen"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        after = f" from {each['before']}" if each["before"] else ""
        why = f", {each['why']}" if each["why"] else ""
        took = "" if each["seconds"] is None else f", after {each['seconds']:.1f} s"
        yield f"take-over  epoch {each['epoch']} by {each['node']}{after} at {seen}{why}{took}"


def _age(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.0f} s"


@replica.command()
@data_dir_option
@asks
def handover(data_dir: Path) -> None:
    """Let another node lead, for instance for an upgrade.

    Run this on the leader's machine. The leader disconnects its clients, syncs its journal, resigns, and begins again
    as a standby. Another standby takes over at once. The command waits for it, and shows who leads.

    \b
    Examples:
      escrowmq replica handover --data-dir /var/lib/escrowmq
    """
    before = ask(data_dir, "replica.status")
    ask(data_dir, "replica.handover")
    began = time.monotonic()
    found = _next_leader(data_dir, before["epoch"], began + _TAKE_OVER_SECONDS)
    if found is None:
        click.echo(f"handed over, and no node leads after {_TAKE_OVER_SECONDS:g} s; see `escrowmq replica status`")
    elif found["leader"] == before["node"]:
        raise click.ClickException("no other node took over, so this one leads again; see `escrowmq replica status`")
    else:
        click.echo(f"handed over to {found['leader']} {found['leader_url']}, after {time.monotonic() - began:.1f} s")


def _next_leader(data_dir: Path, epoch: int, give_up: float) -> dict[str, Any] | None:
    """Return the standing of a node as soon as it knows a leader of a later epoch; None after `give_up`."""
    while time.monotonic() < give_up:
        with suppress(AdminError):  # the process begins again
            found: dict[str, Any] = ask(data_dir, "replica.status")
            if found["epoch"] > epoch and found["leader"]:
                return found
        time.sleep(_PAUSE)
    return None


@replica.command()
@data_dir_option
def detach(data_dir: Path) -> None:
    """Let a node go on alone, its log being gone for good.

    No broker may run on the data directory. Afterwards, a broker starts on it without --replicate. Use this for one
    node only: the other nodes do not learn of what it confirms then.

    \b
    Examples:
      escrowmq replica detach --data-dir /var/lib/escrowmq
    """
    from escrowmq.server.replica.detaching import detach as forget

    try:
        found = forget(data_dir)
    except (JournalError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not found:
        raise click.ClickException(f"{data_dir} belongs to no node of a replicated log")
    click.echo(f"{data_dir} is on no replicated log any more: escrowmq serve --data-dir {data_dir}")
