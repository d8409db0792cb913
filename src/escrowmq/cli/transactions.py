"""`escrowmq tx`: show XA branches, and decide those that are in doubt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import age, asks, check_vhost, confirmed, data_dir_option, json_option, reason_option
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.cli.tables import show_rows
from escrowmq.core.branches.xid import Xid
from escrowmq.text import printable, size
from escrowmq.xid_names.names import details, in_postgresql, quoted

STATES = ("active", "rollback_only", "timed_out", "prepared", "heuristic_committed", "heuristic_rolled_back")


@click.group(cls=CommandGroup)
def tx() -> None:
    """Show the transaction branches (XA) of a running broker, and decide those in doubt.

    A prepared branch is in doubt until its transaction manager decides it. Its messages stay locked until then, also
    over restarts. Committing or rolling back here is a heuristic decision: the transaction manager is told when it
    asks, but it may have decided differently for the other participants. Consult the transaction manager first.

    \b
    Examples:
      escrowmq tx list --in-doubt --older-than 5m --data-dir /var/lib/escrowmq
      escrowmq tx show 1:6f726465722d37:6d71 --data-dir /var/lib/escrowmq
      escrowmq tx rollback 1:6f726465722d37:6d71 --reason "its manager is gone" --data-dir /var/lib/escrowmq
    """


@tx.command("list")
@data_dir_option
@json_option
@click.option("--state", type=click.Choice(STATES), help="Only branches in this state.")
@click.option("--in-doubt", is_flag=True, help="Only branches that are prepared and not decided.")
@click.option("--vhost", help="Only branches of this virtual host.")
@click.option("--queue", help="Only branches with messages from or for this queue.")
@click.option(
    "--older-than", callback=age, default="0", metavar="AGE", help="Only those of this age or older, such as 90s or 1h."
)
@asks
def list_branches(
    data_dir: Path,
    as_json: bool,
    state: str | None,
    in_doubt: bool,
    vhost: str | None,
    queue: str | None,
    older_than: float,
) -> None:
    """List branches, oldest first.

    An xid is written FORMAT:GTRID:BQUAL, the last two in hexadecimal. That of a branch of Spark's is written
    spark:APPLICATION#EPOCH: and the partition with its attempt, or `settle` for what the sources have read. That of a
    branch of Narayana's is written narayana:NODE@TRANSACTION,BRANCH. `takes` and `brings` are the numbers of messages
    that leave queues and arrive in queues when the branch commits.
    """
    check_vhost(data_dir, vhost)
    rows = [
        row
        for row in sorted(ask(data_dir, "tx.list"), key=lambda row: -row["seconds"])
        if (state is None or row["state"] == state)
        and (not in_doubt or row["state"] == "prepared")
        and (vhost is None or row["vhost"] == vhost)
        and (queue is None or queue in {tally["queue"] for tally in row["settled"] + row["published"]})
        and row["seconds"] >= older_than
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    show_rows(
        [
            row
            | {
                "xid": row["name"],
                "takes": _count(row["settled"]),
                "brings": _count(row["published"]),
            }
            for row in rows
        ],
        ("xid", "state", "seconds", "takes", "brings", "vhost", "owner"),
    )


@tx.command("show")
@data_dir_option
@json_option
@click.argument("xid")
@asks
def show_branch(data_dir: Path, as_json: bool, xid: str) -> None:
    """Show the branch XID with its state, owner and messages.

    XID is written as `tx list` shows it, as FORMAT:GTRID:BQUAL in hexadecimal, or as pg_prepared_xacts of PostgreSQL
    shows it. `in PostgreSQL` is the beginning of the names that PostgreSQL has for branches of the same transaction.
    Sizes are those of the messages as they are stored: bodies with their properties.
    """
    branch = ask(data_dir, "tx.show", xid=xid)
    if as_json:
        click.echo(json.dumps(branch, indent=2))
        return
    name = Xid.parse(branch["xid"])
    lines = [
        *((("name", branch["name"]),) if branch["name"] != branch["xid"] else ()),
        ("xid", branch["xid"]),
        *details(name),
        ("gtrid", quoted(name.gtrid)),
        ("bqual", quoted(name.bqual)),
        ("in PostgreSQL", in_postgresql(name)),
        ("state", branch["state"].replace("_", " ")),
        ("age", f"{branch['seconds']:,} s"),
        ("timeout", f"{branch['timeout']} s, until it is prepared" if branch["timeout"] else "none"),
        ("vhost", branch["vhost"]),
        ("owner", branch["owner"] or "unknown"),
        ("channels", f"{branch['workers']} associated"),
        *(("takes", _tally(tally)) for tally in branch["settled"]),
        *(("brings", _tally(tally)) for tally in branch["published"]),
    ]
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        click.echo(f"{click.style(f'{name:<{width}}', bold=True)}  {printable(text)}")


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@tx.command("commit", short_help="Commit a branch that is in doubt.")
@data_dir_option
@click.argument("xid")
@reason_option
@yes_option
@asks
def commit_branch(data_dir: Path, xid: str, reason: str, yes: bool) -> None:
    """Commit the branch XID, which is in doubt, without its transaction manager."""
    _decide(data_dir, xid, "commit", reason, yes=yes)


@tx.command("rollback", short_help="Roll a branch back.")
@data_dir_option
@click.argument("xid")
@reason_option
@yes_option
@asks
def roll_back_branch(data_dir: Path, xid: str, reason: str, yes: bool) -> None:
    """Roll back the branch XID. Messages that it took return to their queues; those that it would bring are dropped."""
    _decide(data_dir, xid, "rollback", reason, yes=yes)


@tx.command("forget", short_help="Forget a branch that an operator has decided.")
@data_dir_option
@click.argument("xid")
@reason_option
@yes_option
@asks
def forget_branch(data_dir: Path, xid: str, reason: str, yes: bool) -> None:
    """Forget the branch XID, which an operator has decided. Its transaction manager is then told that it is unknown."""
    if not yes:
        branch = ask(data_dir, "tx.show", xid=xid)
        if branch["state"].startswith("heuristic"):  # the broker refuses other branches, so there is nothing to confirm
            _confirm(
                f"Branch {branch['name']} is {branch['state'].replace('_', ' ')}. "
                "Forget it, although its transaction manager may not know of that decision?"
            )
    ask(data_dir, "tx.forget", xid=xid, why=reason)


def _decide(data_dir: Path, xid: str, decision: str, reason: str, *, yes: bool) -> None:
    if not yes:
        branch = ask(data_dir, "tx.show", xid=xid)
        moved = [
            *(f"take {_tally(tally)}" for tally in branch["settled"]),
            *(f"bring {_tally(tally)}" for tally in branch["published"]),
        ]
        does = "; ".join(moved) or "move nothing"
        _confirm(
            f"Branch {branch['name']} of {branch['owner'] or 'an unknown owner'} has been "
            f"{branch['state'].replace('_', ' ')} for {branch['seconds']:,} s, and would {does}.\n"
            f"{'Commit it' if decision == 'commit' else 'Roll it back'}, whatever its transaction manager decides?"
        )
    outcome = ask(data_dir, f"tx.{decision}", xid=xid, why=reason)
    branch = outcome["branch"]
    click.echo(f"{branch['name']}: {outcome['outcome']}")


def _confirm(question: str) -> None:
    if not confirmed("\n".join(printable(line) for line in question.split("\n"))):
        raise click.ClickException("nothing was changed")


def _count(tallies: Sequence[Mapping[str, Any]]) -> int:
    return sum(tally["messages"] for tally in tallies)


def _tally(tally: Mapping[str, Any]) -> str:
    where = f"queue '{tally['queue']}' in vhost '{tally['vhost']}'"
    return f"{tally['messages']:,} of {where}" + (f", {size(tally['bytes'])} with properties" if tally["bytes"] else "")
