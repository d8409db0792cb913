"""The command `escrowmq audit`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from escrowmq.units import parse_duration

ERROR = 2


class AuditError(click.ClickException):
    """The audit could not be made; that is no verdict."""

    exit_code = ERROR


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("journal", type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="The folder of the tables."
)
@click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs: local[N], spark://…, yarn, k8s://…"
)
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting for Spark; may be given several times.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    help="Write silver and gold as such tables, too; if left out, as the session's default source is one.",
)
@click.option("--payloads/--no-payloads", default=True, show_default=True, help="Keep the records' content in bronze.")
@click.option(
    "--prepared-limit",
    "prepared",
    default="1h",
    show_default=True,
    callback=_seconds,
    metavar="TIME",
    help="How long a branch may be in doubt.",
)
@click.option("--nice/--no-nice", default=True, show_default=True, help="Leave the processor to others who want it.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON object.")
@click.option("--quiet", is_flag=True, help="No progress.")
def audit(
    journal: Path,
    out: Path,
    master: str,
    conf: tuple[str, ...],
    prepared: float,
    format_: str | None,
    *,
    payloads: bool,
    nice: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Prove from the journal that no rule was broken, or show where one was.

    JOURNAL is the data directory of a broker, which may be running. The tables in --out are brought up to date: a
    second run reads only what is new. Its report.html tells everything in a minute. The last line says CLEAN, with exit
    code 0, or how many violations there are, with 1; an audit that could not be made ends with 2.

    \b
    Examples:
      escrowmq audit /var/lib/escrowmq --out /var/lib/escrowmq-audit
      escrowmq audit /var/lib/escrowmq --out audit --json --quiet
      escrowmq audit /mnt/journal --out /mnt/audit --master spark://head:7077
    """
    from escrowmq.java import SparkUnavailableError, prepare
    from escrowmq.pipeline.background import give_way
    from escrowmq.pipeline.interruption import interruptible
    from escrowmq.pipeline.planning import NoJournalError, plan
    from escrowmq.pipeline.progress import Display
    from escrowmq.pipeline.store import Store, StoreError

    settings = dict(_setting(text) for text in conf)
    try:
        if out.resolve().is_relative_to(journal.resolve()):
            raise AuditError(f"{out} is in the journal's folder, which is the broker's alone; choose another --out")
        found = plan(journal)  # what can be refused is refused before Spark is started
        Store(out).check(found.journal_id)
        _writable(out)
        prepare()
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from escrowmq.pipeline.audit import Options
        from escrowmq.pipeline.audit import audit as run

        try:
            with interruptible() as listen, Display(quiet=quiet) as display:

                def stage(name: str) -> None:
                    listen()
                    display.stage(name)

                if nice:
                    give_way(found.broker)
                verdict = run(
                    journal,
                    out,
                    master=master,
                    conf=settings,
                    options=Options(payloads=payloads, prepared_seconds=prepared, format=format_),
                    progress=stage,
                    tasks=display.tasks,
                )
        except (PySparkException, Py4JError) as error:
            raise AuditError(f"Spark on {master} failed: {_cause(error)}; what it said is above") from error
    except (NoJournalError, StoreError, SparkUnavailableError) as error:
        raise AuditError(str(error)) from error
    except OSError as error:  # which would end with 1, as a verdict does
        raise AuditError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error
    if as_json:
        click.echo(json.dumps({**verdict._asdict(), "clean": verdict.clean, "report": str(out / "report.html")}))
    else:
        click.echo(f"{verdict.records} new records, {verdict.messages} messages; report: {out / 'report.html'}")
        for line in verdict.worst:
            click.echo(f"  {line}")
        click.echo("CLEAN" if verdict.clean else f"{verdict.violations} violation{'s' * (verdict.violations > 1)}")
    return 0 if verdict.clean else 1


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def _writable(out: Path) -> None:
    """Make the folder of the tables, or find out that it cannot be made, before Spark is started."""
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise AuditError(f"--out {out}: {error.strerror}; choose a folder that can be written to") from error


def _cause(error: Exception) -> str:
    """What Spark says, in one line: the end of a worker's traceback, or Java's first cause, without the stacks."""
    said = [line for line in str(error).splitlines() if line.strip()]
    begin = next((i for i, line in enumerate(said) if line.lstrip().startswith("Traceback ")), len(said))
    python = [line for line in said[begin + 1 :] if not line[0].isspace()]
    java = [line.strip() for line in said if line.strip().startswith((": ", "Caused by: "))]
    found = (python[:1] or java[-1:] or said[:1] or [type(error).__name__])[0]
    return found.strip().removeprefix("Caused by:").lstrip(": ")
