"""`escrowmq journal`: snapshots and compaction of a running broker's journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from escrowmq.admin.socket.client import ask
from escrowmq.cli.options import asks, data_dir_option
from escrowmq.cli.subcommands import CommandGroup
from escrowmq.text import size


@click.group(cls=CommandGroup)
def journal() -> None:
    """Snapshot or compact the journal of a running broker; both also happen automatically.

    \b
    Example:
      escrowmq journal snapshot --data-dir /var/lib/escrowmq
    """


@journal.command("snapshot")
@data_dir_option
@asks
def take_snapshot(data_dir: Path) -> None:
    """Take a snapshot now, so that the next start has less to read."""
    ask(data_dir, "journal.snapshot")
    click.echo(_journal_line(ask(data_dir, "status")["journal"]))


@journal.command("compact")
@data_dir_option
@asks
def compact(data_dir: Path) -> None:
    """Copy live messages out of partly dead segments, so that these can be deleted, then take a snapshot."""
    before = ask(data_dir, "status")["journal"]
    ask(data_dir, "journal.compact")
    after = ask(data_dir, "status")["journal"]
    click.echo(
        f"compacted: {size(before['disk_bytes'])} in {_segments(before)} before, "
        f"{size(after['disk_bytes'])} in {_segments(after)} now"
    )
    click.echo(_journal_line(after))


def _journal_line(stats: dict[str, Any]) -> str:
    return (
        f"snapshot: in effect as of LSN {stats['snapshot_lsn']:#x}; "
        f"the journal takes {size(stats['disk_bytes'])} in {_segments(stats)}"
    )


def _segments(stats: dict[str, Any]) -> str:
    return f"{stats['segments']} segment{'' if stats['segments'] == 1 else 's'}"
