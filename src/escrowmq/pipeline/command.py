"""The command `escrowmq audit`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from escrowmq.java import SparkUnavailableError, is_missing, prepare
from escrowmq.units import parse_duration, parse_share

if TYPE_CHECKING:
    from escrowmq.pipeline.verdict import Verdict

ERROR = 2
LOG = "spark.log"
"""The file in the folder of the tables with the output of Java and Spark in the last run."""
IDLE = "using only idle processor time, so other work slows the audit down; --no-nice runs it at normal priority"


class AuditError(click.ClickException):
    """The audit could not be completed, so there is no verdict. Exit status 2."""

    exit_code = ERROR


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _share(_context: click.Context, _option: click.Parameter, value: str | None) -> float:
    try:
        return parse_share(value or "0%")
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("journal", type=click.Path(path_type=Path), envvar="ESCROWMQ_DATA_DIR")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of the audit's tables.")
@click.option(
    "--message", metavar="ID", help="Show every record about the messages with this message id, and audit nothing."
)
@click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs: local[N], spark://…, yarn, k8s://…"
)
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Set a Spark property. Can be repeated.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    help="Also write silver and gold in this format. Default: the session's spark.sql.sources.default.",
)
@click.option(
    "--payloads/--no-payloads", default=True, show_default=True, help="Keep the content of records in bronze."
)
@click.option(
    "--ids/--no-ids",
    default=True,
    show_default=True,
    help="Write the message id, correlation id and publisher of each message.",
)
@click.option(
    "--prepared-limit",
    "prepared",
    default="1h",
    show_default=True,
    callback=_seconds,
    metavar="TIME",
    help="Report branches that are in doubt for longer than this.",
)
@click.option(
    "--unsettled-limit",
    "unsettled",
    default="1d",
    show_default=True,
    callback=_seconds,
    metavar="TIME",
    help="Report links with deliveries that are unsettled for longer than this.",
)
@click.option(
    "--routing",
    is_flag=False,
    flag_value="100%",
    callback=_share,
    metavar="[SHARE]",
    help="Route messages again, and compare: all of them, or a share such as 5%.",
)
@click.option(
    "--nice/--no-nice", default=True, show_default=True, help="Use only processor time that no other process wants."
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON object.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def audit(
    journal: Path,
    out: Path | None,
    message: str | None,
    master: str,
    conf: tuple[str, ...],
    prepared: float,
    unsettled: float,
    format_: str | None,
    routing: float,
    *,
    payloads: bool,
    ids: bool,
    nice: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check the journal against the broker's guarantees, and report every violation.

    JOURNAL is the data directory of a broker, which may be running; by default, it is ESCROWMQ_DATA_DIR. The command
    updates the tables in --out: a second run reads only new records. The result is summarized in report.html in that
    folder. The last line of output is CLEAN (exit status 0) or the number of violations (exit status 1). Exit status 2
    means that the audit could not be completed.

    \b
    Examples:
      escrowmq audit /var/lib/escrowmq --out /var/lib/escrowmq-audit
      escrowmq audit /var/lib/escrowmq --out audit --json --quiet
      escrowmq audit /var/lib/escrowmq --out audit --routing=5%
      escrowmq audit /var/lib/escrowmq --message 7d3f0c2e-order-1815
      escrowmq audit /mnt/journal --out /mnt/audit --master spark://head:7077
    """
    if message is not None:
        return _tell(journal, message, quiet=quiet)
    if out is None:
        raise click.UsageError("Missing option '--out'.")
    settings = dict(_setting(text) for text in conf)
    options = {
        "payloads": payloads,
        "ids": ids,
        "prepared_seconds": prepared,
        "unsettled_seconds": unsettled,
        "format": format_,
        "routing": routing,
    }
    try:
        verdict = _verdict(journal, out, master, settings, options, nice=nice, quiet=quiet)
    except ModuleNotFoundError as error:
        raise _without(error) from error
    if as_json:
        click.echo(json.dumps({**verdict._asdict(), "clean": verdict.clean, "report": str(out / "report.html")}))
    else:
        read = f"{_counted(verdict.records, 'new record')}, {_counted(verdict.messages, 'message')}"
        click.echo(f"{read}; report: {out / 'report.html'}")
        click.echo(f"head: {verdict.head}")
        for line in verdict.worst:
            click.echo(f"  {line}")
        click.echo("CLEAN" if verdict.clean else f"{verdict.violations} violation{'s' * (verdict.violations > 1)}")
    return 0 if verdict.clean else 1


def _tell(journal: Path, message: str, *, quiet: bool) -> int:
    """Print the life of the messages with an id.

    Raises:
        AuditError: there is no such message, no journal, or a package is missing.
    """
    from rich.console import Console

    try:
        from escrowmq.pipeline.planning import NoJournalError
        from escrowmq.pipeline.progress import Display
        from escrowmq.pipeline.tracing import described, lives
    except ModuleNotFoundError as error:  # it needs numpy and PyArrow
        raise _without(error) from error
    try:
        with Display(Console(stderr=True, quiet=quiet)) as display:
            found = lives(journal, message, display.tasks)
    except NoJournalError as error:
        raise AuditError(str(error)) from error
    if not found:
        raise AuditError(f"no message with the id {message!r} was on a queue in {journal}")
    for life in found:
        for line in described(life):
            click.echo(line)
    return 0


def _without(error: ModuleNotFoundError) -> Exception:
    return AuditError("the audit needs Spark: pip install 'escrowmq[spark]'") if is_missing(error) else error


def _verdict(
    journal: Path,
    out: Path,
    master: str,
    settings: Mapping[str, str],
    options: Mapping[str, Any],
    *,
    nice: bool,
    quiet: bool,
) -> Verdict:
    """Check the arguments, start Spark, and audit.

    Raises:
        AuditError: there is no verdict; the text says why in one line.
    """
    from rich.console import Console

    from escrowmq.pipeline.background import give_way
    from escrowmq.pipeline.diversion import diverted
    from escrowmq.pipeline.interruption import interruptible
    from escrowmq.pipeline.planning import NoJournalError, plan
    from escrowmq.pipeline.progress import Display
    from escrowmq.pipeline.store import Store, StoreError

    try:
        if out.resolve().is_relative_to(journal.resolve()):
            raise AuditError(
                f"--out {out} is inside the journal's folder, which only the broker may write to; choose another"
            )
        found = plan(journal)  # starting Spark takes seconds, so bad arguments are refused first
        Store(out).check(found.journal_id)
        _writable(out)
        prepare()
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from escrowmq.pipeline.audit import audit as run
        from escrowmq.pipeline.options import Options

        try:
            with ExitStack() as stack:
                listen = stack.enter_context(interruptible())
                console = Console(file=stack.enter_context(diverted(out / LOG)), quiet=quiet)
                display = stack.enter_context(Display(console))

                def stage(name: str) -> None:
                    listen()
                    display.stage(name)

                if nice and give_way(found.broker):
                    display.note(IDLE)
                return run(
                    journal,
                    out,
                    master=master,
                    conf=settings,
                    options=Options(**options),
                    progress=stage,
                    tasks=display.tasks,
                )
        except (PySparkException, Py4JError) as error:
            raise AuditError(f"Spark on {master} failed: {_cause(error)}; its full output is in {out / LOG}") from error
    except (NoJournalError, StoreError, SparkUnavailableError) as error:
        raise AuditError(str(error)) from error
    except OSError as error:  # click would exit with 1, which means violations
        raise AuditError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def _writable(out: Path) -> None:
    """Create the folder of the tables, and check before Spark is started that it can be written to."""
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise AuditError(f"--out {out}: {error.strerror}; choose a folder that can be written to") from error


def _cause(error: Exception) -> str:
    """Return the error as one line without stacks: the last line of a worker's traceback, or Java's root cause."""
    said = [line for line in str(error).splitlines() if line.strip()]
    begin = next((i for i, line in enumerate(said) if line.lstrip().startswith("Traceback ")), len(said))
    python = [line for line in said[begin + 1 :] if not line[0].isspace()]
    java = [line.strip() for line in said if line.strip().startswith((": ", "Caused by: "))]
    found = (python[:1] or java[-1:] or said[:1] or [type(error).__name__])[0]
    return found.strip().removeprefix("Caused by:").lstrip(": ")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
