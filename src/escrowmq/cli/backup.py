"""`escrowmq backup` and `escrowmq restore`: copies of a broker's journal, and the way back."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

from escrowmq.admin.socket.client import AdminError
from escrowmq.backup import operations
from escrowmq.backup.copying import Copy
from escrowmq.backup.manifest import BackupDamaged, BackupError, Manifest
from escrowmq.backup.source import allow_descriptors
from escrowmq.cli.options import age, data_dir_option
from escrowmq.journal.errors import JournalError
from escrowmq.text import size

_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
_END: Final = (signal.SIGTERM, signal.SIGINT)
"""The signals that end `--follow`."""
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _pause(context: click.Context, parameter: click.Parameter, value: str) -> float:
    if not context.params.get("follow"):
        if context.get_parameter_source("interval") is not ParameterSource.DEFAULT:
            raise click.UsageError("--interval has no effect without --follow", context)
        return 0.0
    seconds = age(context, parameter, value)
    if seconds <= 0:
        raise click.BadParameter("the pause must be longer than 0", context, parameter)
    return seconds


@click.command()
@_directory
@data_dir_option
@click.option("--follow", is_flag=True, is_eager=True, help="Keep the copy up to date until SIGTERM or Ctrl-C.")
@click.option(
    "--interval",
    default="1s",
    show_default=True,
    callback=_pause,
    metavar="TIME",
    help="With --follow: the pause between two updates.",
)
@_json
def backup(directory: Path, data_dir: Path, *, follow: bool, interval: float, as_json: bool) -> None:
    """Copy the journal of a broker to DIR, or keep a copy up to date.

    The broker may be running; one that is still starting is waited for, up to half a minute. If it is stopped, it
    cannot be started meanwhile; with --follow, the command waits for it instead, also before its first start. DIR is
    created if necessary. If it holds an earlier backup of the same broker, that is read and verified, only what is new
    is copied, and the earlier backup stays whole until the new one is.

    Everything that was confirmed before the command began is in the backup. Each frame's checksums and the chain of
    segments are checked in the copy, and everything is on disk before the manifest DIR/backup.json lists it. A backup
    that was cut off is the one before it; run the command again to continue.

    The files of DIR contain messages and password hashes unencrypted. Exit code 1 means that no new backup was made;
    one line on stderr says why, and which backup DIR holds.

    \b
    Examples:
      escrowmq backup /mnt/backup/broker-1 --data-dir /var/lib/escrowmq
      escrowmq backup /mnt/nfs/broker-1 --follow --interval 250ms
      escrowmq restore /mnt/backup/broker-1 --check
    """
    allow_descriptors()
    advice = "make a new backup in an empty directory"
    with _failing(f"cannot back up {data_dir} to {directory}", directory, advice):
        if follow:
            signal.pthread_sigmask(signal.SIG_BLOCK, _END)  # they are looked for between two updates
            if not _begun(data_dir, interval):
                return
        with _progress("backing up") as progress, operations.copy_in(directory, data_dir, progress) as copy:
            report = partial(_report, directory, verb="copied", as_json=as_json)
            if follow:
                _follow(copy, data_dir, interval, report)
            else:
                report(operations.back_up(copy, data_dir, _waits), copy.copied_bytes)


@click.command()
@_directory
@data_dir_option
@click.option("--check", "only_check", is_flag=True, help="Check the backup, and restore nothing.")
@_json
def restore(directory: Path, data_dir: Path, *, only_check: bool, as_json: bool) -> None:
    """Make a data directory from the backup in DIR, or check a backup.

    The data directory must be empty or not exist. The copy is checked as the backup was: the SHA-256 of each file,
    each frame, the chain of segments, and whether the journal itself has deleted what is missing between them. Such a
    gap that no record of the journal explains is a warning without --check, since a broker starts in spite of it.

    A broker that is started on the copy has everything that the backup has, with transaction branches in doubt,
    unsettled deliveries of links, users and access keys. It refuses a directory whose restore was cut off; run the
    command again.

    Make sure that the broker that was backed up does not run any more: it and the restored one would deliver the same
    messages.

    Exit code 1 means that nothing was restored, or that the backup is damaged.

    \b
    Examples:
      escrowmq restore /mnt/backup/broker-1 --data-dir /var/lib/escrowmq
      escrowmq restore /mnt/backup/broker-1 --check
    """
    what = f"the backup in {directory} cannot be used" if only_check else f"cannot restore {directory} to {data_dir}"
    with _failing(what, None, "use another backup"), _progress("checking" if only_check else "restoring") as progress:
        if only_check:
            manifest = operations.check(directory, progress)
            _report(directory, manifest, manifest.size, verb="checked", as_json=as_json)
        else:
            manifest, gaps = operations.restore(directory, data_dir, progress)
            for gap in gaps:
                click.echo(f"warning: {gap}", err=True)
            _report(directory, manifest, manifest.size, verb="restored", as_json=as_json)


def _ended(seconds: float) -> bool:
    """Wait for a signal that ends the command, and return whether one came."""
    return signal.sigtimedwait(_END, seconds) is not None


def _waits(reason: str) -> None:
    click.echo(f"{reason}; waiting up to {operations.PATIENCE_SECONDS:g} s for it", err=True)


def _begun(data_dir: Path, interval: float) -> bool:
    """Wait until a broker has begun a journal. Return False if a signal comes first."""
    if not operations.has_journal(data_dir):
        click.echo(f"there is no journal in {data_dir} yet; waiting until a broker starts there", err=True)
        while not operations.has_journal(data_dir):
            if _ended(interval):
                click.echo("stopped; nothing was copied", err=True)
                return False
    return True


def _follow(copy: Copy, data_dir: Path, interval: float, report: Callable[[Manifest, int], None]) -> None:
    """Update the copy again and again until a signal comes. `report` tells the first whole backup."""
    answers: bool | None = None
    manifest: Manifest | None = None
    while not _ended(interval if answers is not None else 0):
        try:
            updated = operations.follow_up(copy, data_dir)
        except AdminError as error:
            if answers is not False:
                click.echo(f"the copy stays as it is until a broker answers: {error}", err=True)
            answers = False
            continue
        if manifest is None:
            report(updated, copy.copied_bytes)
        if not answers:
            click.echo(f"following {data_dir}", err=True)
        manifest, answers = updated, True
    if manifest is not None:
        click.echo(f"stopped; the copy has everything confirmed before {_time(manifest)}", err=True)


@contextmanager
def _failing(what: str, directory: Path | None, advice: str) -> Iterator[None]:
    """Turn errors into one line, which also says what backup there is in `directory`, or gives the advice for one that
    is damaged.
    """
    try:
        yield
    except BackupDamaged as error:
        raise click.ClickException(f"{what}: {error}; {advice}") from error
    except (BackupError, JournalError) as error:
        raise click.ClickException(f"{what}: {error}{_left(directory)}") from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{what}: {where}{error.strerror or error}{_left(directory)}") from error


def _left(directory: Path | None) -> str:
    manifest = operations.whole_backup(directory) if directory is not None else None
    return f"; {directory} still holds the backup as of {_time(manifest)}" if manifest is not None else ""


@contextmanager
def _progress(text: str) -> Iterator[Callable[[int], Any]]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (SpinnerColumn(), TextColumn(text), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(text, total=None)
        yield lambda count: progress.advance(task, count)


def _report(directory: Path, manifest: Manifest, moved: int, *, verb: str, as_json: bool) -> None:
    if as_json:
        document = asdict(manifest) | {f"{verb}_bytes": moved, "directory": str(directory)}
        kept = ("directory", "journal_id", "as_of_us", "end_lsn", f"{verb}_bytes")
        result = {key: document[key] for key in kept} | {"files": len(manifest.files), "bytes": manifest.size}
        click.echo(json.dumps(result))
        return
    files = f"{len(manifest.files)} file{'s' * (len(manifest.files) != 1)}, {size(manifest.size)}"
    click.echo(
        f"{directory}: {files} ({size(moved)} {verb}), up to LSN {manifest.end_lsn:#x}, "
        f"with everything confirmed before {_time(manifest)}"
    )


def _time(manifest: Manifest) -> str:
    time = datetime.fromtimestamp(manifest.as_of_us / 1e6, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
