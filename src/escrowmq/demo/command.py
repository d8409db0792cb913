"""The command line of the demonstration."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Final

import click

from escrowmq.demo import flights
from escrowmq.demo.broker import Broker, BrokerFailed
from escrowmq.demo.display import INDENT, Display, display
from escrowmq.demo.link import waiting
from escrowmq.demo.story import Broken, Result, Story

TRANSACTION: Final = 500
MARKER: Final = "made-by-make-run"
"""A file in the data directory: the demonstration filled it, and may do so again."""
INTERRUPTED: Final = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--once", is_flag=True, help="Stop after the closing line, instead of staying up until Ctrl-C.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Send the first N flights only.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the broker keeps its journal, and leaves it; without it a temporary folder, removed at the end.",
)
def command(*, once: bool, limit: int | None, data_dir: Path | None) -> None:
    """Send 336,776 events through a broker that is killed in the middle, and count every one of them.

    The events are the flights that left New York in 2013, as JSON messages in transactions of 500. Exit code 0 says
    that all of them arrived once; 1 that they did not, or that the broker failed.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if data_dir is not None:
        _claim(data_dir)
    workspace = Path(tempfile.mkdtemp(prefix="escrowmq-"))
    broker = Broker(data_dir.absolute() if data_dir else workspace / "data", workspace / "broker.log")
    done = False
    try:
        done = _run(broker, limit, once=once)
        code = 0 if done else 1
    except KeyboardInterrupt:
        code = INTERRUPTED
    except flights.NoData as error:
        code = _fail(str(error))
    except (Broken, BrokerFailed) as error:
        code = _fail(f"{error}\nthe broker's log is kept: {broker.log_file}; its data as well: {broker.data_dir}")
    finally:
        broker.stop()
    if code in {0, INTERRUPTED}:
        shutil.rmtree(workspace)
        kept = f"{data_dir} is kept" if data_dir else f"{broker.data_dir} was temporary, and is removed"
        click.echo(f"{'data':<{INDENT}}{kept}")
    if code == INTERRUPTED:
        click.echo("interrupted", err=True)
    sys.exit(code)


def _claim(data_dir: Path) -> None:
    """Mark the directory as the demonstration's. Raises ClickException when some other broker's data is in it."""
    marker = data_dir / MARKER
    try:
        if data_dir.is_dir() and any(data_dir.iterdir()) and not marker.exists():
            raise click.ClickException(
                f"{data_dir} holds something that is not this demonstration's; give an empty one"
            )
        data_dir.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise click.ClickException(f"{data_dir}: {error.strerror}") from error


def _run(broker: Broker, limit: int | None, *, once: bool) -> bool:
    """Everything; whether the count was right."""
    data = flights.archive()
    total = min(flights.count(data), limit or sys.maxsize)
    shown = display(total)
    transactions = -(-total // TRANSACTION)
    shown.say(
        "EscrowMQ",
        f"{version('escrowmq')}: {total:,} flights as JSON messages, {transactions:,} transactions of {TRANSACTION}, "
        "through pika",
    )
    shown.say("broker", f"{broker.start()}, process {broker.pid}")
    if there := waiting(broker.url):
        raise BrokerFailed(f"the queue in {broker.data_dir} holds {there:,} messages already; give an empty --data-dir")
    with shown:
        result = Story(broker, shown, TRANSACTION, max(1, transactions // 2)).play(data, total)
        shown.show(result.published.count, result.tally.settled)
    good = _close(shown, result, transactions)
    if good and not once:
        _stay(shown, broker)
    return good


def _close(shown: Display, result: Result, transactions: int) -> bool:
    """The closing lines; whether all is well."""
    published, tally = result.published, result.tally
    if faults := result.faults():
        shown.say("WRONG", "\n".join(faults))
        return False
    again = f"{tally.repeated:,} came a second time, none of which a commit had acknowledged"
    shown.say(
        "counted",
        f"{transactions:,} transactions, {published.resent} of them sent again, in {result.seconds:,.1f} s: "
        f"{published.count / result.seconds:,.0f} messages/s from end to end;\n"
        f"{again if tally.repeated else 'none came a second time'}",
    )
    if not result.doubts:
        shown.say("note", f"in {result.kills} kills no commit was caught on its way")
    shown.say(
        "result",
        f"published {published.count:,} = consumed {tally.settled:,}; none lost, none twice, "
        "each in its order and with its content",
    )
    return True


def _stay(shown: Display, broker: Broker) -> None:
    """Until Ctrl-C, or until the broker ends."""
    escrowmq = Path(sys.executable).parent / "escrowmq"
    shown.say("up", f"{broker.url} until Ctrl-C; its data is in {broker.data_dir}")
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
