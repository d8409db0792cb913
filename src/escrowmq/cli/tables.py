"""A broker's answers as readable tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import click

from escrowmq.text import columns, counted, printable, size

NO_ALARM: Final = "none"


def show_rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Print one line for each row, with numbers aligned to the right."""
    right = [bool(rows) and all(type(row.get(name)) in {int, float} for row in rows) for name in names]
    head, *lines = columns(
        [[name.replace("_", " ") for name in names], *([shown(row.get(name)) for name in names] for row in rows)], right
    )
    click.secho(head, bold=True)
    for line in lines:
        click.echo(line)


def longest_first(row: Mapping[str, Any]) -> Any:
    """The default order of queues."""
    return -row["ready"] - row["unsettled"] - row["locked"], row["vhost"], row["name"]


def oldest_first(row: Mapping[str, Any]) -> Any:
    """The default order of connections."""
    return -row["seconds"]


def show_queues(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print queues. Columns for held and in-doubt messages, and for the reason why queues are unavailable, appear only
    if there are any.
    """
    special = [key for key in ("held", "locked", "withheld") if any(row.get(key) for row in rows)]
    faults = ["unavailable"] if any(row.get("unavailable") for row in rows) else []
    show_rows(rows, ("vhost", "name", "type", "durable", "ready", "unsettled", *special, "consumers", *faults))


def show_connections(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print connections."""
    show_rows(rows, ("peer", "user", "vhost", "protocol", "state", "channels", "tls", "unsent_bytes", "held_back_by"))


def show_status(status: Mapping[str, Any]) -> None:
    """Print the state of the broker."""
    memory, disk, journal, queues = status["memory"], status["disk"], status["journal"], status["queues"]
    alarms = status["alarms"]
    commits = f"{journal['records'] / journal['batches']:.1f} records each" if journal["batches"] else "none yet"
    stored = f"{size(journal['disk_bytes'])} in {counted(journal['segments'], 'segment')}"
    waiting = f"{queues['ready']:,} ready, {queues['unsettled']:,} unsettled or locked"
    delayed = f", {counted(queues['delayed'], 'delayed message')} in none" if queues["delayed"] else ""
    counts = f"{waiting}, {counted(queues['consumers'], 'consumer')}{delayed}"
    lines = [
        ("version", f"{status['version']}, Python {status['python']}, {status['event_loop']}, pid {status['pid']}"),
        ("data", status["data_dir"]),
        ("listens on", " ".join(status["listeners"])),
        ("up for", str(timedelta(seconds=int(status["uptime_seconds"])))),
        ("alarms", alarms_line(alarms, status["unavailable_queues"])),
        (
            "memory",
            f"{size(memory['resident_bytes'])} resident, publishers are blocked above {size(memory['limit_bytes'])}",
        ),
        ("disk", f"{size(disk['free_bytes'])} free, publishers are blocked below {size(disk['limit_bytes'])}"),
        ("connections", f"{status['connections']} open, {status['connections_accepted']} since the start"),
        ("queues", f"{queues['count']:,} with {counts}"),
        ("branches", branches_line(status["transactions"])),
        ("half messages", half_line(status["half_messages"])),
        (
            "journal",
            f"{stored}, {counted(journal['snapshots'], 'snapshot')} since the start",
        ),
        ("syncs", f"{journal['syncs']:,}, {commits}, median {journal['sync_us_median'] / 1000:g} ms at most"),
        ("maintenance", journal["maintenance"]),
        *([("tokens", tokens_line(status["tokens"]))] if status.get("tokens") else []),
    ]
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        alarm = name == "alarms" and text != NO_ALARM
        click.echo(
            f"{click.style(f'{name:<{width}}', bold=True)}  {click.style(printable(text), fg='red' if alarm else None)}"
        )


def tokens_line(tokens: Mapping[str, Any]) -> str:
    """Return whose tokens are accepted, and by how many keys."""
    fault = f"; they cannot be read from {tokens['keys_from']}: {tokens['fault']}" if tokens["fault"] else ""
    return f"of {tokens['issuer']} for {tokens['audience']}, {tokens['keys']} keys{fault}"


def alarms_line(alarms: Sequence[str], unavailable: int) -> str:
    """Return the alarms that block publishers, and the number of queues that cannot be read."""
    found = [", ".join(alarms) + ": publishers are blocked"] if alarms else []
    if unavailable:
        queues = "1 queue is" if unavailable == 1 else f"{unavailable:,} queues are"
        found.append(f"{queues} unavailable: see `escrowmq queues`")
    return "; ".join(found) or NO_ALARM


def branches_line(counts: Mapping[str, int]) -> str:
    """Return the number of branches, and how many of them need attention."""
    if not counts["branches"]:
        return "none"
    text = f"{counts['branches']:,}"
    if counts["in_doubt"]:
        oldest = timedelta(seconds=counts["in_doubt_seconds"])
        text += f", {counts['in_doubt']:,} in doubt, the oldest for {oldest}: see `escrowmq tx list`"
    if counts["heuristic"]:
        text += f", {counts['heuristic']:,} decided by an operator and not forgotten"
    return text


def half_line(counts: Mapping[str, int]) -> str:
    """Return the numbers of half messages without a decision, and which of them need an operator."""
    found = [
        f"{counts[state]:,} {state}, the oldest for {timedelta(seconds=counts[f'{state}_seconds'])}"
        for state in ("pending", "parked")
        if counts[state]
    ]
    see = ": see `escrowmq half list`" if counts["parked"] else ""
    return ("; ".join(found) or "none") + see


def shown(value: Any) -> str:
    """Return a JSON value as readable text."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(map(shown, value))
        case dict():
            return ", ".join(f"{key}={shown(each)}" for key, each in value.items())
    return str(value)
