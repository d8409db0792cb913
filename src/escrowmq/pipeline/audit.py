"""One run of the audit pipeline: read new records from the journal, and update bronze, silver and gold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from escrowmq.pipeline import (
    continuity,
    decisions,
    gold,
    judging,
    lake,
    lives,
    mentions,
    rerouting,
    silver,
    steps,
    sums,
    tasks,
    unsettled,
)
from escrowmq.pipeline.concurrency import at_once
from escrowmq.pipeline.continuity import Continuity
from escrowmq.pipeline.coverage import recorded
from escrowmq.pipeline.ddl import ddl
from escrowmq.pipeline.messages import SCHEMA as MESSAGES
from escrowmq.pipeline.options import OPTIONS, Options
from escrowmq.pipeline.pinning import pinned
from escrowmq.pipeline.planning import PIECE, NoJournalError, Piece, Plan, plan
from escrowmq.pipeline.policies import KnownPhases
from escrowmq.pipeline.progress import Tasks, Watch
from escrowmq.pipeline.report import write_report
from escrowmq.pipeline.rule_counts import rule_counts
from escrowmq.pipeline.scanning import LogScan
from escrowmq.pipeline.store import State, Store
from escrowmq.pipeline.verdict import WORST, Verdict
from escrowmq.pipeline.verdict_file import violations_of, write_verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str], object]
ATTEMPTS: Final = 3
"""How often a run is tried if the broker deletes segments while it reads them. `pinned` prevents that where it can."""
TASKS_OF_A_CORE: Final = 4
TASK_BYTES: Final = 256 << 20
"""The bytes of the log for a task, if that makes more tasks than TASKS_OF_A_CORE. Spark takes about 50 ms for each."""


class OutrunError(NoJournalError):
    """The broker deleted segments while they were being read."""

    def __init__(self, journal: str) -> None:
        super().__init__(
            f"{journal}: the broker deleted segments while they were being read; raise its setting "
            "journal.retain_bytes so that it keeps them longer"
        )


class Audit:
    """A run in progress."""

    def __init__(
        self,
        spark: SparkSession,
        journal: Path,
        store: Store,
        options: Options,
        progress: Progress,
        files: Path | None = None,
    ) -> None:
        """Plan a run.

        Args:
            spark: the session that does the work.
            journal: the broker's data directory.
            store: the tables to update.
            options: options of the audit.
            progress: called with the name of each stage when it begins.
            files: the folder from which the journal's files are read; `journal` if omitted.

        Raises:
            NoJournalError: there is no journal that can be read.
            StoreError: the tables belong to another journal, or the session cannot write the requested format.
        """
        files = files or journal
        self.spark = spark
        self.journal = str(journal.absolute())
        self.files = str(files.absolute())
        self.store = store
        self.options = options
        self.progress = progress
        self.state: State = deepcopy(store.state)
        self.begin = self.state.lsn
        self.plan: Plan = plan(files, self.begin, self.state.start, self.state.compared)
        store.check(self.plan.journal_id)
        if self.plan.start > self.state.start:
            for queue in self.state.queues.values():
                queue.first = 0  # the log now begins later, so the first known position has to be found again
        self.scan = LogScan(self.state)
        self.numbered: list[dict[str, Any]] = []
        self.mentioned: list[mentions.Mention] = []
        self.followed: KnownPhases = self.state.policies
        self.continuity = Continuity()
        self.half: DataFrame | None = None
        """Violations and undecided half messages (`pipeline.half`); None if there are none in the journal."""
        self.groups: DataFrame | None = None
        """Violations and progress of consumer groups (`pipeline.groups`); None if there are no groups."""
        self.misrouted: list[Any] = []
        """Violations that routing has found (`pipeline.routing`)."""
        self.routed = self.untold = 0
        """The number of messages that were routed again, and of those whose routes the log does not show."""
        self.links: DataFrame | None = None
        """Violations and unsettled deliveries of link termini (`pipeline.links`); None if there are no termini."""
        wanted = lake.wanted(spark, options.format)
        self.lake = lake.lake(spark, store.folder / "lake", wanted, self.plan.journal_id)

    def run(self) -> Verdict:
        """Execute the run, and commit it. If this raises an exception, the run is not committed.

        Raises:
            OutrunError: the broker deleted segments while they were being read.
            PySparkException, Py4JError, OSError: Spark or the file system failed.
        """
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            return self._run()
        except (PySparkException, Py4JError, OSError) as error:
            if self._outrun():
                raise OutrunError(self.journal) from error
            raise

    def _outrun(self) -> bool:
        return not all(Path(self.files, piece.file).exists() for piece in self.plan.pieces)

    def _run(self) -> Verdict:
        self.store.discard()
        self.progress("scan: checksums, topology")
        rows = self.mapped(tasks.Scan(self.files), tasks.SCAN_DDL)
        self.scan.take(rows.collect())  # few rows, even for many messages
        self.progress("bronze and silver: records, messages, branches")
        work = (
            silver.write_messages,
            silver.write_branches,
            silver.write_records,
            steps.check_links,
            steps.check_half,
            steps.check_groups,
            continuity.check,
            rerouting.check,
        )
        (messages, count), branches, *_ = at_once(self.spark, *(partial(each, self) for each in work))
        self.progress("gold: violations, undecided, latency, throughput")
        verdict = self._judge(messages, count, branches)
        if verdict.fresh and self._outrun():  # records that seem to be missing may have been in a deleted segment
            raise OutrunError(self.journal)
        lives.write(self)
        self.progress("report")
        moves = recorded(messages, silver.facts(self))
        counts, found = rule_counts(self, verdict, moves), violations_of(self)
        write_report(self, verdict, counts, moves)
        if self.lake is not None:
            self.progress("tables of the lakehouse")
            schemas = {"silver.messages": ddl(MESSAGES), "silver.branches": f"{decisions.DDL}, state string"}
            lake.publish(self.lake, self.store, schemas)
        self._commit()
        write_verdict(self.store.folder, verdict, self.plan.journal_id, counts, found)
        return verdict

    def before(self, table: str, schema: str | None = None) -> DataFrame | None:
        """Return the rows that the previous run wrote for a table; None in the first run, or if there are none."""
        return self.store.read(self.spark, table, run=self.state.run, schema=schema) if self.state.run else None

    def history(self, table: str, schema: str) -> DataFrame | None:
        """Return the rows that earlier runs have written in the state `settled`; None in the first run."""
        if not self.state.run:
            return None
        return self.store.history(self.spark, table, f"{schema}, state string").where("state = 'settled'")

    def sums(self, table: str) -> DataFrame:
        """Return the sums of this run's messages in a table of `pipeline.sums`."""
        found = self.store.read(self.spark, table, run=self.store.run, schema=sums.DDL[table])
        assert found is not None, f"{table} was not written"
        return found

    # -- the journal

    def pieces(self) -> DataFrame:
        """Return the pieces of the journal that this run reads."""
        small = 1 + self.plan.bytes // PIECE  # small pieces share a task
        return self.divided(self.plan.pieces, min(len(self.plan.pieces), small))

    def divided(self, pieces: list[Piece], most: int) -> DataFrame:
        """Return pieces in at most `most` partitions."""
        rows = self.spark.sparkContext.parallelize([tuple(piece) for piece in pieces], self.task_count(most))
        return self.spark.createDataFrame(rows, tasks.PIECES_DDL)

    def task_count(self, most: int) -> int:
        """Return the number of tasks for work that can be divided into at most `most` parts."""
        cores = self.spark.sparkContext.defaultParallelism
        return max(1, min(most, max(TASKS_OF_A_CORE * cores, self.plan.bytes // TASK_BYTES)))

    def mapped(self, task: Callable[..., Any], schema: str) -> DataFrame:
        """Return what a task makes of these pieces."""
        return self.pieces().mapInArrow(task, schema)

    # -- gold

    def _judge(self, messages: DataFrame, count: int, branches: DataFrame) -> Verdict:
        names = gold.names(self.spark, self.state.queues)
        found, _, _ = at_once(
            self.spark,
            lambda: self._violations(messages, branches),
            lambda: self._throughput(names),
            lambda: self._latency(names),
        )
        kept, fresh, late, undecided, worst = found
        return Verdict(
            violations=kept + late,
            fresh=fresh + late,
            undecided=undecided,
            run=self.store.run,
            lsn=self.plan.end,
            records=self.scan.records,
            messages=count,
            bytes=self.plan.bytes,
            worst=worst,
            head=str(self.continuity.head or ""),
        )

    def _throughput(self, names: DataFrame) -> None:
        keys = ["vhost", "queue", "minute"]
        now = gold.throughput(self.sums(sums.FLOW), names)
        self.store.write(self.spark, "gold.throughput", gold.merged(self.before("gold.throughput"), now, keys))

    def _latency(self, names: DataFrame) -> None:
        keys = ["vhost", "queue", "hour", "stage", "class"]
        classes = gold.merged(self.before("state.latencies"), gold.latencies(self.sums(sums.LATENCIES), names), keys)
        classes = self.store.write(self.spark, "state.latencies", classes)
        self.store.write(self.spark, "gold.latency", gold.percentiles(classes))

    def _violations(self, messages: DataFrame, branches: DataFrame) -> tuple[int, int, int, int, tuple[str, ...]]:
        """Write the tables of violations and of branches in doubt.

        Returns the number of permanent violations, how many of them are new, the number of branches in doubt, and of
        termini with unsettled deliveries, for too long, the number of branches in doubt, and the first explanations.
        """
        spark, store = self.spark, self.store
        before = self.before("state.violations")
        found = store.write(spark, "state.violations", judging.violations(self, messages, branches))
        doubt = store.write(spark, "gold.undecided", judging.undecided(branches))
        late = [*judging.overdue(self, doubt), *unsettled.overdue(self, judging.present(self))]
        kept = found.count()
        if late:
            found = found.unionAll(gold.identified(spark.createDataFrame(late, gold.FOUND_DDL), messages))
        found = store.write(spark, "gold.violations", found)
        worst = tuple(f"{row.rule} {row.name}: {row.explanation}" for row in found.limit(WORST).collect())
        return kept, kept - (before.count() if before is not None else 0), len(late), doubt.count(), worst

    def _commit(self) -> None:
        plan, state = self.plan, self.state
        state.journal_id, state.start, state.holes = plan.journal_id, plan.start, plan.holes
        state.lsn = max(plan.end, self.begin)
        state.removed = self.scan.noted[1].hex()
        state.policies = self.followed
        state.last_time = self.scan.last_time
        state.compared = max(plan.snapshots, default=state.compared)
        self.store.commit(state)


def audit(
    journal: Path,
    out: Path,
    *,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    options: Options = OPTIONS,
    progress: Progress = lambda _: None,
    tasks: Tasks = lambda _done, _total: None,
) -> Verdict:
    """Audit the records added to a journal since the last run, and update the tables (docs/guides/auditing.md).

    Args:
        journal: the broker's data directory; a broker may be running on it.
        out: the folder of the tables.
        spark: the session to use; if omitted, a session is started on `master`, and stopped at the end.
        master: the Spark master of that session.
        conf: settings of that session.
        options: options of the audit.
        progress: called with the name of each stage when it begins.
        tasks: called from time to time with the number of tasks done and the total of the current stage.

    Raises:
        NoJournalError: there is no journal that can be read, or the broker keeps deleting segments (OutrunError).
        StoreError: the folder `out` cannot be used, or the requested format cannot be written.
        SparkUnavailableError: Spark or Java is missing.
    """
    store = Store(out)
    with store.locked(), ExitStack() as stack:
        if spark is None:
            from escrowmq.pipeline.session import session

            progress("starting Spark")
            spark = session(master, conf=conf)
            stack.callback(spark.stop)
        local = str(spark.sparkContext.master).startswith("local")
        files = stack.enter_context(pinned(journal)) if local else journal
        stack.enter_context(Watch(spark, tasks))
        for _ in range(ATTEMPTS - 1):
            with suppress(OutrunError):
                return Audit(spark, journal, store, options, progress, files).run()
            progress("the broker deleted segments while they were being read: starting over")
        return Audit(spark, journal, store, options, progress, files).run()
