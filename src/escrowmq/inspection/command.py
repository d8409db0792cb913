"""The command `escrowmq inspect`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from escrowmq.inspection.describe import line
from escrowmq.inspection.scan import FileReport, Record, gap_faults, scan, verdict
from escrowmq.journal.format import parse_name
from escrowmq.journal.reader import GapFound, JournalReader
from escrowmq.journal.storage import FileStorage
from escrowmq.text import columns, printable


def _lsn(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        lsn = int(value, 0)
    except ValueError:
        lsn = -1
    if lsn < 0:
        raise click.BadParameter(f"{value!r} is not an LSN; give a number like 4096 or 0x1000")
    return lsn


@click.command()
@click.argument("journal", type=click.Path(path_type=Path), envvar="ESCROWMQ_DATA_DIR")
@click.option("--records", is_flag=True, help="Print every record, one per line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --records, one per line.")
@click.option(
    "--from", "start", callback=_lsn, metavar="LSN", help="Read only the log from this LSN on, and no snapshots."
)
def inspect(journal: Path, *, records: bool, as_json: bool, start: int | None) -> int:
    """Show and check the contents of a journal.

    JOURNAL is a data directory, or one file in it; by default, it is ESCROWMQ_DATA_DIR. The checksum of every frame
    and the content of every record is checked; after a damaged range, reading continues at the next intact frame.
    Nothing is changed, and a broker may be running on it.

    Exit code 1 means that the journal is damaged, 141 that the reader of the output has gone (`… | head`). A torn tail
    does not count as damage: it is an incomplete last frame in the segment that was being written. A crash during a
    write and damage to that one frame look the same; the broker cuts the frame off when it starts.

    \b
    Examples:
      escrowmq inspect /var/lib/escrowmq
      escrowmq inspect /var/lib/escrowmq --records --from 0x1000
      escrowmq inspect /var/lib/escrowmq/0000000000000000.log --records --json
    """
    if not journal.exists():
        raise click.UsageError(f"{journal}: no such file or directory")
    storage = FileStorage(journal if journal.is_dir() else journal.parent, read_only=True)
    reports: list[FileReport] = []
    gaps: list[GapFound] = []
    refusal = None
    try:
        names = _names(storage, journal, with_snapshots=start is None)
        with _progress(sum(map(storage.size, names)), quiet=records) as progress:
            for item in scan(JournalReader(storage, names), start or 0, progress):
                if isinstance(item, FileReport):
                    reports.append(item)
                elif isinstance(item, GapFound):
                    gaps.append(item)
                elif records:
                    click.echo(json.dumps(_record(item)) if as_json else _record_line(item))
        if start and not as_json and not any(report.frames or report.faults for report in reports):
            end = _end(storage, names)
            click.echo(f"There is nothing at or after LSN {start:#x}: the log ends at LSN {end:#x}.")
            return 0
        if journal.is_dir():
            refusal = verdict(storage)
    finally:
        storage.close()
    faults = [fault for report in reports for fault in report.faults]
    if start is None:
        faults += gap_faults(gaps, reports)
    if as_json:
        click.echo(json.dumps(_document(journal, reports, [fault._asdict() for fault in faults], refusal)))
    else:
        _print(reports, [str(fault) for fault in faults], refusal, whole=journal.is_dir())
    return 1 if faults or refusal else 0


def _names(storage: FileStorage, journal: Path, *, with_snapshots: bool) -> list[str]:
    names = [name for name in storage.names() if parse_name(name)] if journal.is_dir() else [journal.name]
    if not any(map(parse_name, names)):
        raise click.ClickException(f"{journal}: not a journal: there is no file with a name like 0000000000000000.log")
    return [name for name in names if with_snapshots or not name.endswith(".snapshot")]


def _end(storage: FileStorage, names: list[str]) -> int:
    """Return the LSN at which the log's last intact frame ends."""
    last = [name for name in names if not name.endswith(".snapshot")][-1:]
    found = scan(JournalReader(storage, last), 0, lambda _: None)
    return max((item.end_lsn for item in found if isinstance(item, FileReport)), default=0)


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Any]:
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("checking", total=total)
        yield lambda size: progress.advance(task, size)


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _record(record: Record) -> dict[str, Any]:
    return {
        "file": record.file,
        "lsn": record.lsn,
        "time": _time(record.time_us),
        "kind": record.kind.name,
        "size": record.size,
        "record": record.fields,
    }


def _record_line(record: Record) -> str:
    return f"{record.lsn:#014x} {_time(record.time_us)} {record.kind.name:<12} {line(record.fields)}"


def _document(
    journal: Path, reports: list[FileReport], faults: list[dict[str, Any]], refusal: str | None
) -> dict[str, Any]:
    return {
        "journal": str(journal),
        "files": [_file(report) for report in reports],
        "faults": faults,
        "refusal": refusal,
        "damaged": bool(faults or refusal),
    }


def _file(report: FileReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "snapshot": report.snapshot,
        "size": report.size,
        "lsn": report.lsn,
        "end_lsn": report.end_lsn,
        "sealed": report.sealed,
        "frames": report.frames,
        "records": report.records,
        "kinds": report.kinds,
        "messages": report.messages,
        "faults": [fault._asdict() for fault in report.faults],
        "torn": report.torn or None,
    }


def _print(reports: list[FileReport], faults: list[str], refusal: str | None, *, whole: bool) -> None:
    headings = ("File", "LSN", "to", "Bytes", "Frames", "Records", "First", "Last", "State")
    rows = [
        (
            report.name,
            f"{report.lsn:#x}",
            "" if report.snapshot else f"{report.end_lsn:#x}",
            f"{report.size:,}",
            f"{report.frames:,}",
            f"{report.records:,}",
            _time(report.first_time_us) if report.frames else "",
            _time(report.last_time_us) if report.frames else "",
            "damaged" if report.faults else "torn tail" if report.torn else "sealed" if report.sealed else "open",
        )
        for report in reports
    ]
    head, *lines = columns([headings, *rows], [heading in {"Bytes", "Frames", "Records"} for heading in headings])
    click.secho(head, bold=True)
    for text in lines:
        click.echo(text)
    for title, counts in (
        ("Records", sum((report.kinds for report in reports), Counter[str]())),
        ("Messages", sum((report.messages for report in reports if not report.snapshot), Counter[str]())),
    ):
        if counts:
            click.echo(f"{title}: " + ", ".join(f"{count:,} {name}" for name, count in counts.most_common()))
    for fault in faults:
        click.secho(f"damaged: {printable(fault)}", fg="red")
    torn = [report for report in reports if report.torn]
    for report in torn:
        click.echo(
            f"{report.name}: the last frame is incomplete, and the broker cuts it off when it starts: {report.torn}"
        )
        click.echo("  A crash during a write looks like that; damage to that one frame looks the same.")
    if refusal:
        click.secho(f"The broker would refuse to start: {printable(refusal)}", fg="red")
    elif not faults:
        before = " before that frame" if torn else ""
        click.echo(
            f"Intact: every checksum and every record{before} is valid."
            if whole
            else f"Intact{before}, as far as this file goes."
        )
