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
"""Messages that Spark takes in one epoch at most."""
MARKER: Final = "made-by-make-run"
"""A file in a folder: the demonstration filled it, and may do so again."""
INTERRUPTED: Final = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--once", is_flag=True, help="Stop after the closing lines, instead of staying up until Ctrl-C.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Send the first N flights only.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the broker keeps its journal, and leaves it; without it a temporary folder, removed at the end.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the table and the audit's report go, in place of those of the last run; without it they are temporary.",
)
def command(*, once: bool, limit: int | None, data_dir: Path | None, out: Path | None) -> None:
    """Send 336,776 events through broker and Spark, kill both in the middle, and count every one of the events.

    The events are the flights that left New York in 2013, as JSON messages in transactions of 500. A client consumes
    them; a Spark query sums up their delays in a table, and writes the late ones to another queue. The audit then reads
    in the broker's journal what became of each. Exit code 0 says that all of them arrived once and the audit found
    nothing; 1 that it is not so, or that something failed.
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
        shutil.rmtree(workspace)  # nothing was started
    except (Broken, BrokerFailed, AuditFailed) as error:
        code = _fail(f"{error}\nthe broker's log is kept: {broker.log_file}; its data as well: {broker.data_dir}")
    finally:
        broker.stop()
    if code in {0, INTERRUPTED}:
        shutil.rmtree(workspace, ignore_errors=True)
        kept = f"{data_dir} is kept" if data_dir else f"{workspace} was temporary, and is removed"
        click.echo(f"{'data':<{INDENT}}{kept}")
    elif workspace.exists():
        click.echo(f"{'data':<{INDENT}}{workspace} is kept")
    if code == INTERRUPTED:
        click.echo("interrupted", err=True)
    sys.exit(code)


def _claim(folder: Path) -> None:
    """Mark the directory as the demonstration's. Raises ClickException when something else is in it."""
    marker = folder / MARKER
    try:
        if folder.is_dir() and any(folder.iterdir()) and not marker.exists():
            raise click.ClickException(f"{folder} holds something that is not this demonstration's; give an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror}") from error


def _emptied(out: Path) -> Path:
    """The folder, without what the last run has left there."""
    for entry in out.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != MARKER:
            entry.unlink()
    return out


def _put_temporary_files_into(folder: Path) -> None:
    """Of this process and all that it starts: a JVM that is killed does not remove its own."""
    folder.mkdir()
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = tempfile.tempdir = str(folder)


def _run(broker: Broker, results: Path, limit: int | None, *, once: bool) -> bool:
    """Everything; whether all of it was right."""
    began = time.monotonic()
    data = flights.archive()
    prepare()  # Spark: what is missing is said before anything is started
    total = min(flights.count(data), limit or sys.maxsize)
    shown = display(total)
    transactions = -(-total // TRANSACTION)
    shown.say(
        "EscrowMQ",
        f"{version('escrowmq')}: {total:,} flights as JSON messages, {transactions:,} transactions of {TRANSACTION}, "
        "through pika;\neach to two queues, one for a client to consume, one for Spark",
    )
    shown.say("broker", f"{broker.start()}, process {broker.pid}")
    if there := declare(broker.url):
        raise BrokerFailed(f"the queues in {broker.data_dir} hold {there:,} messages already; give an empty --data-dir")
    job = Job(broker.url, f"flights-{uuid.uuid4().hex[:12]}", results, max(TRANSACTION, min(EPOCH, total // 5)))
    streaming = Streaming(shown, job)
    streaming.start()
    shown.say("spark", "its driver starts, which takes a while; meanwhile the flights go in")
    try:
        with shown:
            result = Story(broker, streaming, shown, TRANSACTION, max(1, transactions // 2)).play(data, total)
            shown.show(result.published.count, result.tally.settled, result.processed)
    finally:
        streaming.kill()
    shown.say("audit", f"escrowmq audit reads the broker's journal in {broker.data_dir}, by Spark as well")
    wanted, outcome = checks.expected(data, total), checks.found(broker.url, job.table)
    audited = audit(broker.data_dir, results / "audit", lambda line: shown.say("", line))
    good = Closing(shown, result, streaming, outcome, audited).tell(transactions, checks.faults(wanted, outcome))
    shown.say("time", f"{time.monotonic() - began:,.0f} s")
    if not once:
        _stay(shown, broker)
    return good


def _stay(shown: Display, broker: Broker) -> None:
    """Until Ctrl-C, or until the broker ends."""
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
            click.echo()  # behind the terminal's ^C
        shown.say("end", "the broker finishes what it promised, and stops")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(text: str) -> int:
    click.echo(text, err=True)
    return 1
