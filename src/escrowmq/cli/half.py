"""`escrowmq half`: show half messages, and decide those that no producer decides."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import age, asks, confirmed, data_dir_option, json_option, reason_option, show
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.cli.tables import shown
from escrowmq.text import printable, size

STATES = ("pending", "parked", "committed", "rolled_back")
UNDECIDED = STATES[:2]
_COLUMNS = ("transaction", "state", "topic", "group", "message_id", "seconds", "checks", "next_check")
_OUTCOMES = {"commit": "committed", "drop": "rolled_back"}
_WAITS = "waits for a producer"
_vhost_option = click.option("--vhost", default="/", show_default=True, help="The virtual host of the message.")
_yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group(cls=CommandGroup)
def half() -> None:
    """Show half messages, and decide those that no producer decides.

    TRANSACTION is the transaction id that `escrowmq half list` shows, or the id that a RocketMQ client has got for the
    transaction, which is the message id.

    A half message is delivered when its producer commits it. A pending one is checked: the broker asks producers of its
    group, several times. If nobody decides it, it is parked, and a producer can no longer decide it. Resume it to have
    it checked again, or commit or drop it here. Consult the producer's database first: `escrowmq half show` prints the
    message. Outcomes are shown for some minutes.

    \b
    Examples:
      escrowmq half list --state parked --data-dir /var/lib/escrowmq
      escrowmq half show 00000000000000075A3C9F10 --data-dir /var/lib/escrowmq
      escrowmq half resume 00000000000000075A3C9F10 --reason "the producer is back" --data-dir /var/lib/escrowmq
    """


@half.command("list")
@data_dir_option
@json_option
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only this state. Can be repeated.")
@click.option("--all", "every", is_flag=True, help="Also the outcomes that are still known.")
@click.option("--vhost", default="", help="Only half messages of this virtual host.")
@click.option("--topic", default="", help="Only half messages of this topic.")
@click.option(
    "--older-than", callback=age, default="0", metavar="AGE", help="Only those of this age or older, such as 90s or 1h."
)
@asks
def list_half_messages(
    data_dir: Path, as_json: bool, states: tuple[str, ...], every: bool, vhost: str, topic: str, older_than: float
) -> None:
    """List half messages in the order of their arrival.

    Those that are pending or parked are listed, or those in the states that are given. The age is in `seconds`, the
    time until the next check is in `next check`, and `checks` is the number of checks that reached a producer. A
    message that is due waits if no producer of its group is connected.
    """
    if states and every:
        raise click.UsageError("--state and --all exclude each other")
    wanted = [] if every else list(states or UNDECIDED)
    found = ask(data_dir, "half.list", vhost=vhost, topic=topic, states=wanted)
    rows = [row for row in found if row["seconds"] >= older_than]
    if not as_json:
        rows = [row | {"next_check": _WAITS} if row["waits_for_producer"] else row for row in rows]
    show(rows, _COLUMNS, as_json=as_json)


@half.command("show")
@data_dir_option
@json_option
@click.argument("transaction")
@_vhost_option
@click.option("--body", "only_body", is_flag=True, help="Print only the body, as it was sent.")
@asks
def show_half_message(data_dir: Path, as_json: bool, transaction: str, vhost: str, only_body: bool) -> None:
    """Show the half message TRANSACTION.

    An undecided message is shown with its tag, keys, properties, and the first 1,024 bytes of its body. JSON has the
    whole body: as `body` if it is text, else as `body_base64`.
    """
    if as_json and only_body:
        raise click.UsageError("--json and --body exclude each other; JSON has the whole body")
    row = ask(data_dir, "half.show", vhost=vhost, transaction=transaction, whole=as_json or only_body)
    if only_body:
        _print_body(row)
        return
    if as_json:
        click.echo(json.dumps(row, indent=2))
        return
    lines = [
        ("transaction", row["transaction"]),
        ("state", row["state"].replace("_", " ")),
        ("vhost", row["vhost"]),
        ("topic", row["topic"]),
        ("message id", row["message_id"]),
        ("producers", f"group '{row['group']}', user '{row['user']}'"),
        ("sent by", row["producer"] or "unknown"),
        ("age", f"{row['seconds']:,} s"),
        ("checks", str(row["checks"])),
    ]
    if row["waits_for_producer"]:
        lines.append(("next check", _WAITS))
    if row["next_check"] is not None:
        lines.append(("next check", f"in {row['next_check']:,} s"))
    if row["decided"] is not None:
        lines.append(("decided", f"{row['decided']:,} s ago"))
    lines.append(("goes to", f"queue '{row['queue']}'" if row["queue"] else "a queue that was deleted"))
    if "bytes" in row:
        lines += _content(row)
    if "unreadable" in row:
        lines.append(("content", row["unreadable"]))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        click.echo(f"{click.style(f'{name:<{width}}', bold=True)}  {printable(text)}")


def _content(row: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("routing key", row["routing_key"])] if row["routing_key"] != (row["tag"] or "") else []
    lines += [("tag", row["tag"] or "none"), ("keys", row["keys"] or "none")]
    if row["message_group"]:
        lines.append(("message group", row["message_group"]))
    pairs = ", ".join(f"{name}={shown(value)}" for name, value in row["properties"].items())
    lines.append(("properties", pairs or "none"))
    length, text = size(row["bytes"]), row["body"]
    if text is None:
        return [*lines, ("body", f"{length} that are not text; --body prints them")]
    rest = "" if row["body_is_whole"] else " … (--body prints all of it)"
    return [*lines, ("body", f"{length}: {text}{rest}" if text else length)]


def _print_body(row: dict[str, Any]) -> None:
    if "bytes" not in row:
        reason = (
            row.get("unreadable") or f"it is {row['state'].replace('_', ' ')}, and the body is no longer kept for it"
        )
        raise click.ClickException(f"the body of half message {row['transaction']} cannot be shown: {reason}")
    body = row["body"].encode() if row["body"] is not None else b64decode(row["body_base64"])
    if sys.stdout.isatty():
        click.echo(printable(body.decode("utf-8", "backslashreplace")))
    else:
        click.echo(body, nl=False)


@half.command("resume")
@data_dir_option
@click.argument("transaction")
@_vhost_option
@reason_option
@asks
def resume(data_dir: Path, transaction: str, vhost: str, reason: str) -> None:
    """Have a parked half message checked again.

    Its checks begin with the first one.
    """
    _change(data_dir, "resume", transaction, vhost, reason)


@half.command("commit")
@data_dir_option
@click.argument("transaction")
@_vhost_option
@reason_option
@_yes_option
@asks
def commit(data_dir: Path, transaction: str, vhost: str, reason: str, yes: bool) -> None:
    """Deliver a half message, whatever its producer decides."""
    _decide(data_dir, "commit", transaction, vhost, reason, yes=yes)


@half.command("drop")
@data_dir_option
@click.argument("transaction")
@_vhost_option
@reason_option
@_yes_option
@asks
def drop(data_dir: Path, transaction: str, vhost: str, reason: str, yes: bool) -> None:
    """Drop a half message, whatever its producer decides.

    It is never delivered.
    """
    _decide(data_dir, "drop", transaction, vhost, reason, yes=yes)


def _decide(data_dir: Path, decision: str, transaction: str, vhost: str, reason: str, *, yes: bool) -> None:
    row = ask(data_dir, "half.show", vhost=vhost, transaction=transaction)
    if row["state"] == _OUTCOMES[decision]:
        click.echo(f"{row['transaction']} is {row['state'].replace('_', ' ')} already; nothing was changed")
        return
    if not yes and row["state"] in UNDECIDED:
        question = (
            f"Message '{printable(row['message_id'])}' of topic '{printable(row['topic'])}' is {row['state']} and "
            f"{row['seconds']:,} s old. {decision.capitalize()} it, whatever its producer decides?"
        )
        if not confirmed(question):
            raise click.ClickException("nothing was changed")
    _change(data_dir, decision, transaction, vhost, reason)


def _change(data_dir: Path, operation: str, transaction: str, vhost: str, reason: str) -> None:
    row = ask(data_dir, f"half.{operation}", vhost=vhost, transaction=transaction, why=reason)
    click.echo(f"{row['transaction']}: {row['state'].replace('_', ' ')}")
