"""The command line of the demonstration."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Final

import click

from escrowmq.demo import checks, flights
from escrowmq.demo.auditing import AuditFailed, audit
from escrowmq.demo.broker import Broker, BrokerFailed
from escrowmq.demo.closing import Closing
from escrowmq.demo.display import INDENT, Display, display
from escrowmq.demo.driver import Job
from escrowmq.demo.link import declare
from escrowmq.demo.story import Story
from escrowmq.demo.streaming import Broken, Streaming
from escrowmq.java import SparkUnavailableError, prepare

TRANSACTION: Final = 500
EPOCH: Final = 30_000
"""The largest number of messages in one epoch of Spark."""
MARKER: Final = "made-by-make-run"
"""A file that marks a folder as the demonstration's, so that it may be used again."""
INTERRUPTED: Final = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--once", is_flag=True, help="Exit after the closing lines instead of running until Ctrl-C.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Send only the first N flights.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="The broker's data directory, which is kept. The default is a temporary folder.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the table and the audit's report, replacing those of the last run. The default is temporary.",
)
def command(*, once: bool, limit: int | None, data_dir: Path | None, out: Path | None) -> None:
    """Send 336,776 events through broker and Spark, kill both in the middle, and count every event.

    The events are the flights that left New York in 2013, as JSON messages in transactions of 500. A client consumes
    them. A Spark query sums up their delays in a table and writes the late flights to another queue. Finally the audit
    checks the history of each message in the broker's journal. Exit code 0 means that every event arrived exactly once
    and that the audit found no violation. Exit code 1 means that this is not so, or that a step failed.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    for folder in (data_dir, out):
        if folder is not None:
            _claim(folder)
    workspace = Path(tempfile.mkdtemp(prefix="escrowmq-"))
    results = _emptied(out.absolute()) if out else workspace
    _put_temporary_files_into(workspace / "tmp")
    broker = Broker(
        data_dir.absolute() if data_dir else workspace / "data", workspace / "broker.log", workspace / "broker.toml"
    )
    done = False
    try:
        done = _run(broker, results, limit, once=once)
        code = 0 if done else 1
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (flights.NoData, SparkUnavailableError) as error:
        code = _fail(str(error))
        shutil.rmtree(workspace)  # nothing has been started
    except (Broken, BrokerFailed, AuditFailed) as error:
        code = _fail(f"{error}\nthe broker's log is kept in {broker.log_file}, its data in {broker.data_dir}")
    finally:
        broker.stop()
    if code in {0, INTERRUPTED}:
        shutil.rmtree(workspace, ignore_errors=True)
        kept = f"{data_dir} is kept" if data_dir else f"{workspace} was temporary and has been removed"
        click.echo(f"{'data':<{INDENT}}{kept}")
    elif workspace.exists():
        click.echo(f"{'data':<{INDENT}}{workspace} is kept")
    if code == INTERRUPTED:
        click.echo("interrupted", err=True)
    sys.exit(code)


def _claim(folder: Path) -> None:
    """Mark the folder as the demonstration's. Raises ClickException if it contains anything else."""
    marker = folder / MARKER
    try:
        if folder.is_dir() and any(folder.iterdir()) and not marker.exists():
            raise click.ClickException(
                f"{folder} contains files that are not from this demonstration; choose an empty folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror}") from error


def _emptied(out: Path) -> Path:
    """Remove the results of the last run from the folder."""
    for entry in out.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != MARKER:
            entry.unlink()
    return out


def _put_temporary_files_into(folder: Path) -> None:
    """Move the temporary files of all processes to this folder: a killed JVM does not remove its own."""
    folder.mkdir()
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = tempfile.tempdir = str(folder)


def _run(broker: Broker, results: Path, limit: int | None, *, once: bool) -> bool:
    """Run the whole demonstration. Returns whether every result was right."""
    began = time.monotonic()
    data = flights.archive()
    prepare()  # fails before anything is started if Spark is missing
    total = min(flights.count(data), limit or sys.maxsize)
    shown = display(total)
    transactions = -(-total // TRANSACTION)
    shown.say(
        "EscrowMQ",
        f"{version('escrowmq')}: {total:,} flights as JSON messages, {transactions:,} transactions of {TRANSACTION}, "
        "through pika;\neach goes to two queues, one for a client and one for Spark",
    )
    shown.say("broker", f"{broker.start()}, process {broker.pid}")
    if there := declare(broker.url):
        raise BrokerFailed(
            f"the queues in {broker.data_dir} already contain {there:,} messages; choose an empty --data-dir"
        )
    job = Job(broker.url, f"flights-{uuid.uuid4().hex[:12]}", results, max(TRANSACTION, min(EPOCH, total // 5)))
    streaming = Streaming(shown, job)
    streaming.start()
    shown.say("spark", "its driver is starting, which takes a while; meanwhile the flights are published")
    try:
        with shown:
            result = Story(broker, streaming, shown, TRANSACTION, max(1, transactions // 2)).play(data, total)
            shown.show(result.published.count, result.tally.settled, result.processed)
    finally:
        streaming.kill()
    shown.say("audit", f"escrowmq audit reads the broker's journal in {broker.data_dir}, also with Spark")
    wanted, outcome = checks.expected(data, total), checks.found(broker.url, job.table)
    audited = audit(broker.data_dir, results / "audit", lambda line: shown.say("", line))
    good = Closing(shown, result, streaming, outcome, audited).tell(transactions, checks.faults(wanted, outcome))
    shown.say("time", f"{time.monotonic() - began:,.0f} s")
    if not once:
        _stay(shown, broker)
    return good


def _stay(shown: Display, broker: Broker) -> None:
    """Wait until Ctrl-C, or until the broker exits."""
    escrowmq = Path(sys.executable).parent / "escrowmq"
    shown.say("up", f"{broker.url} until Ctrl-C; its data is in {broker.data_dir}")
    shown.say("queues", f"{escrowmq} queues --data-dir {broker.data_dir}")
    shown.say("inspect", f"{escrowmq} inspect {broker.data_dir}")
    shown.say("status", f"{escrowmq} status --data-dir {broker.data_dir}")
    shown.say("load", f"{escrowmq} perf --url {broker.url} --scenario confirms")
    ended = threading.Event()
    try:
        while not ended.wait(1.0):
            broker.check()
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            click.echo()  # so that the next line does not follow the terminal's ^C
        shown.say("end", "the broker syncs everything that it has confirmed, and stops")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(text: str) -> int:
    click.echo(text, err=True)
    return 1
