"""One run of the audit pipeline: read new records from the journal, and update bronze, silver and gold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline import (
    chain,
    decisions,
    digests,
    gold,
    group_facts,
    groups,
    half,
    judging,
    lake,
    links,
    lives,
    mentions,
    packing,
    removals,
    rerouting,
    sequences,
    sums,
    tasks,
    unsettled,
)
from escrowmq.pipeline.branches import DDL as STEPS
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.concurrency import at_once
from escrowmq.pipeline.coverage import recorded
from escrowmq.pipeline.ddl import ddl
from escrowmq.pipeline.frames import SCHEMA as RECORDS
from escrowmq.pipeline.lifecycle import MessageFacts
from escrowmq.pipeline.messages import SCHEMA as MESSAGES
from escrowmq.pipeline.messages import Names
from escrowmq.pipeline.names import TOLD
from escrowmq.pipeline.pinning import pinned
from escrowmq.pipeline.planning import PIECE, NoJournalError, Piece, Plan, plan
from escrowmq.pipeline.policies import KnownPhases, PolicyHistory
from escrowmq.pipeline.progress import Tasks, Watch
from escrowmq.pipeline.queue_terms import terms
from escrowmq.pipeline.report import write_report
from escrowmq.pipeline.rule_counts import rule_counts
from escrowmq.pipeline.sequences import Wrong
from escrowmq.pipeline.store import Queue, State, Store
from escrowmq.pipeline.verdict_file import violations_of, write_verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str], object]
WORST: Final = 10
ATTEMPTS: Final = 3
"""How often a run is tried if the broker deletes segments while it reads them. `pinned` prevents that where it can."""
PART_RECORDS: Final = 250_000
PART_BYTES: Final = 24 << 20
TASKS_OF_A_CORE: Final = 4
TASK_BYTES: Final = 256 << 20
"""The bytes of the log for a task, if that makes more tasks than TASKS_OF_A_CORE. Spark takes about 50 ms for each."""


class Options(NamedTuple):
    """Options of an audit.

    Args:
        payloads: whether the table of records contains their payloads.
        prepared_seconds: the time in seconds after which a branch in doubt is a violation.
        unsettled_seconds: the time in seconds after which an unsettled delivery of a durable link is a violation.
        routing: the share of the log's records whose messages are routed again, from 0 to 1.
        ids: whether the table of messages contains their message ids, correlation ids and publishers.
        format: "parquet", or "delta" or "iceberg" to write silver and gold in that format as well; None takes the
            session's default source if it is one of these.
    """

    payloads: bool = True
    prepared_seconds: float = 3600.0
    unsettled_seconds: float = 86400.0
    routing: float = 0.0
    ids: bool = True
    format: str | None = None


class OutrunError(NoJournalError):
    """The broker deleted segments while they were being read."""

    def __init__(self, journal: str) -> None:
        super().__init__(
            f"{journal}: the broker deleted segments while they were being read; raise its setting "
            "journal.retain_bytes so that it keeps them longer"
        )


class Verdict(NamedTuple):
    """The result of a run.

    Args:
        violations: the number of violations, including those that earlier runs have found.
        fresh: the number of violations that are new in this run.
        undecided: the number of branches in doubt.
        run: the number of the run, from 1.
        lsn: the address up to which the journal has been read.
        records: the number of records read by this run.
        messages: the number of messages checked by this run.
        bytes: the number of bytes of the log read by this run.
        worst: explanations of the first violations, at most WORST.
        head: the end of the log and its digest, from which the next run proves that the log continues.
    """

    violations: int
    fresh: int
    undecided: int
    run: int
    lsn: int
    records: int
    messages: int
    bytes: int
    worst: tuple[str, ...] = ()
    head: str = ""

    @property
    def clean(self) -> bool:
        """Whether no rule was ever broken."""
        return self.violations == 0


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
        self.records = 0
        self.last_time = self.state.last_time
        self.broken: list[tuple[str, int, str]] = []
        self.numbered: list[dict[str, Any]] = []
        self.mentioned: list[mentions.Mention] = []
        self.named: list[tuple[int, int, int, bytes]] = []
        self.followed: KnownPhases = self.state.policies
        self.unchained: list[Wrong] = []
        self.changed: list[Wrong] = []
        self.compared = digests.Compared()
        self.head: chain.Head | None = None
        self.noted = (-1, bytes.fromhex(self.state.removed))
        """The LSN and the payload of the newest record of removed segments."""
        self.deleted: bool | None = None
        """Whether the journal has noted all deletions of segments; None if no segment is missing."""
        self.proved = False
        """Whether every segment was proved to continue the one before, and the log the one that the last run saw, if
        there was a last run.
        """
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
        self.handed = {ident: [queue.handed] for ident, queue in self.state.queues.items() if queue.handed[0]}

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
        self._scan()
        self.progress("bronze and silver: records, messages, branches")
        work = (
            self._messages,
            self._branches,
            self._bronze,
            self._links,
            self._half,
            self._groups,
            self._chain,
            lambda: rerouting.check(self),
        )
        (messages, count), branches, *_ = at_once(self.spark, *work)
        self.progress("gold: violations, undecided, latency, throughput")
        verdict = self._judge(messages, count, branches)
        if verdict.fresh and self._outrun():  # records that seem to be missing may have been in a deleted segment
            raise OutrunError(self.journal)
        lives.write(self)
        self.progress("report")
        moves = recorded(messages, self.facts())
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

    # -- the journal

    def pieces(self) -> DataFrame:
        """Return the pieces of the journal that this run reads."""
        small = 1 + self.plan.bytes // PIECE  # small pieces share a task
        return self._divided(self.plan.pieces, min(len(self.plan.pieces), small))

    def _divided(self, pieces: list[Piece], most: int) -> DataFrame:
        """Return pieces in at most `most` partitions."""
        rows = self.spark.sparkContext.parallelize([tuple(piece) for piece in pieces], self._tasks(most))
        return self.spark.createDataFrame(rows, tasks.PIECES_DDL)

    def _tasks(self, most: int) -> int:
        """Return the number of tasks for work that can be divided into at most `most` parts."""
        cores = self.spark.sparkContext.defaultParallelism
        return max(1, min(most, max(TASKS_OF_A_CORE * cores, self.plan.bytes // TASK_BYTES)))

    def mapped(self, task: Callable[..., Any], schema: str) -> DataFrame:
        """Return what a task makes of these pieces."""
        return self.pieces().mapInArrow(task, schema)

    def _scan(self) -> None:
        times: list[tuple[int, int, int]] = []
        for row in self.mapped(tasks.Scan(self.files), tasks.SCAN_DDL).collect():  # few rows, even for many messages
            if row.kind == 0:
                if row.snapshot < 0:
                    self.records += row.number
                    self.last_time = max(self.last_time, row.time)
                    times.append((row.lsn, 1, row.time))
                if row.payload:
                    self.broken.append((row.file, row.lsn, bytes(row.payload).decode()))
            elif row.kind == tasks.BEGINS:
                times.append((row.lsn, 0, row.time))
            elif row.kind == tasks.SET_BACK:
                self.state.set_back.append(row.lsn)
            else:
                self._changed(row)
        times.sort()
        self.state.set_back += [
            now[0] for past, now in pairwise(times) if not now[1] and now[2] + tasks.SET_BACK_US < past[2]
        ]

    def _changed(self, row: Any) -> None:
        queues = self.state.queues
        if row.kind in TOLD:
            self.named.append((row.snapshot, row.lsn, row.kind, bytes(row.payload)))
        if row.kind == Kind.REMOVED and row.snapshot < 0:
            self.noted = max(self.noted, (row.lsn, bytes(row.payload)))
        if row.kind == Kind.DELIVERED:
            said = (row.time, row.lsn, row.frame)
            self.handed.setdefault(row.number, []).append(said)
            queue = queues.get(row.number)
            if queue is not None and row.time > queue.handed[0]:
                queue.handed = said
        elif row.kind == Kind.ACQUIRED:
            self.state.acquired = sorted({*self.state.acquired, row.number})
        elif row.kind == Kind.TERMINUS_SET:
            fields = decode_change(bytes(row.payload))
            known = self.state.termini.get(str(fields["number"]), ["", 0])  # a snapshot may be older than its deletion
            self.state.termini[str(fields["number"])] = [unsettled.title(fields), known[1]]
            unsettled.note_durable(self.state.durable_links, fields, row.lsn)
        elif row.kind == Kind.TERMINUS_DELETED:
            number = str(decode_change(bytes(row.payload))["number"])
            self.state.termini[number] = [self.state.termini.get(number, [""])[0], row.lsn]
        elif row.kind in (Kind.GROUP_SET, Kind.GROUP_DELETED):
            lsn = row.snapshot if row.snapshot >= 0 else row.lsn
            group_facts.note(self.state.consumer_groups, decode_change(bytes(row.payload)), lsn)
        elif row.kind in (Kind.QUEUE_DECLARED, Kind.QUEUE_DELETED):
            fields = decode_change(bytes(row.payload))
            unknown = Queue(plain(fields["vhost"]), plain(fields["name"]), declared=False)
            queue = queues.setdefault(fields["id"], unknown)
            if row.kind == Kind.QUEUE_DELETED:
                queue.deleted = (row.lsn, row.frame, row.time)
            elif not queue.declared:
                queue.declared, queue.arguments = True, json.loads(json.dumps(fields["arguments"], default=str))
                queue.since = row.snapshot if row.snapshot >= 0 else row.lsn
                queue.logged = row.snapshot < 0

    def _bronze(self) -> None:
        task = tasks.Bronze(self.files, self.options.payloads)
        self.store.fill(self.spark, "bronze.records", self.pieces(), task, ddl(RECORDS))

    # -- silver

    def facts(self) -> MessageFacts:
        """Return the facts that apply to all messages, gathered from the scan and from earlier runs."""
        queues = self.state.queues
        known = set(self.store.state.holes)
        return MessageFacts(
            start=self.plan.start,
            begin=self.begin,
            published={ident: queue.published for ident, queue in queues.items() if queue.published},
            deleted={ident: queue.deleted for ident, queue in queues.items() if queue.deleted},
            handed=self.handed,
            snapshots=self.plan.snapshots,
            holes=[hole for hole in self.plan.holes if not self.plan.held_back or hole in known],
            priorities=frozenset(i for i, queue in queues.items() if queue.arguments.get("x-max-priority")),
            streams=frozenset(i for i, queue in queues.items() if queue.arguments.get("x-queue-type") == "stream"),
            declared=frozenset(i for i, queue in queues.items() if queue.declared) if self.plan.start else None,
            terms=terms(queues, self.policies()),
            set_back=self.state.set_back,
            segments=self.plan.segments,
        )

    def policies(self) -> PolicyHistory:
        """Return the policies that queues followed in the new part of the log."""
        state = self.state
        history = PolicyHistory(state.policies)
        certain = self.plan.start == 0 if self.begin == 0 else self.plan.start <= self.begin
        history.follow(self.named, self.begin, self.plan.snapshots, certain=certain)
        self.followed = history.known()
        return history

    def _messages(self) -> tuple[DataFrame, int]:
        before = self.before("silver.messages", ddl(MESSAGES))
        left = None if before is None else before.where("state = 'open'").drop("state", "day")
        waiting = 0 if left is None else left.count()
        parts = max(2, (self.records + waiting) // PART_RECORDS, self.plan.bytes // PART_BYTES)
        packed = self.mapped(tasks.Happenings(self.files, parts, self.options.ids), packing.DDL)
        if left is not None:
            packed = packed.unionAll(left.mapInArrow(tasks.Reopen(parts), packing.DDL))
        names = Names({ident: (queue.vhost, queue.name) for ident, queue in self.state.queues.items()})
        packed = packed.repartition(self._tasks(parts), "part").sortWithinPartitions("part", "lsn")
        task = tasks.Lives(self.facts(), names)
        added = sums.of_messages(self.begin, self.plan.start)
        return self.store.fill(self.spark, "silver.messages", packed, task, ddl(MESSAGES), "state", "day", sums=added)

    def sums(self, table: str) -> DataFrame:
        """Return the sums of this run's messages in a table of `pipeline.sums`."""
        found = self.store.read(self.spark, table, run=self.store.run, schema=sums.DDL[table])
        assert found is not None, f"{table} was not written"
        return found

    def _branches(self) -> DataFrame:
        from pyspark.sql import functions as f

        steps = self.mapped(tasks.Branches(self.files), STEPS)
        steps = self.store.write(self.spark, "staging.steps", steps)
        numbered = f.col("step").isin(*sequences.STEPS, mentions.STEP)
        found = [row.asDict() for row in steps.where(numbered).collect()]
        self.numbered = [row for row in found if row["step"] != mentions.STEP]
        self.mentioned = [mentions.mention(row) for row in found if row["step"] == mentions.STEP]
        steps = steps.where(~numbered)
        before = self.before("state.branches")
        deleted = frozenset(ident for ident, queue in self.state.queues.items() if queue.deleted)
        facts = decisions.BranchFacts(deleted, tuple(self.plan.snapshots), self.plan.start)
        rows = decisions.branches(steps, before, facts)
        rows = rows.selectExpr("*", decisions.STATE)
        rows = self.store.write(self.spark, "silver.branches", rows, "state")
        self.store.write(self.spark, "state.branches", decisions.open_steps(steps, before, rows))
        return rows

    def _links(self) -> None:
        if not self.state.termini:
            return
        found = self.mapped(tasks.Links(self.files, unsettled.watched(self.state)), links.DDL)
        before = self.before("state.links", links.DDL)
        if before is not None:
            found = found.unionAll(before.select(found.columns))
        gone = {int(number): lsn for number, (_, lsn) in self.state.termini.items() if lsn}
        deleted = {ident: queue.deleted[0] for ident, queue in self.state.queues.items() if queue.deleted}
        told = links.told(self.plan.start, self.store.state.compared, self.plan.snapshots)
        facts = links.LinkFacts(self.plan.start, gone, deleted, told)
        found = found.repartition(max(2, self.records // PART_RECORDS), "part")
        found = found.mapInArrow(tasks.JudgedLinks(facts), links.DDL)
        self.links = self.store.write(self.spark, "staging.links", found)
        self.store.write(self.spark, "state.links", self.links.where("wrong = ''"))

    def _chain(self) -> None:
        before = chain.Head(*self.state.head) if self.state.head else None
        pieces = self._divided(self.plan.chained, len(self.plan.chained))
        task = tasks.Chained(self.files, before.lsn if before else -1)
        found = [row.asDict() for row in pieces.mapInArrow(task, chain.DDL).collect()]
        found = [{name: bytes(v) if isinstance(v, bytearray) else v for name, v in row.items()} for row in found]
        missing = self.plan.missing
        self.unchained, self.head, self.proved = chain.judge(found, before, missing.holes if missing.noted else ())
        seen = self.store.state.holes if self.plan.running else None
        removed, self.deleted = removals.judge(missing, removals.noted_holes(self.noted[1]), seen)
        self.unchained += removed
        self.proved &= self.deleted is not False
        queues = {ident: queue.name for ident, queue in self.state.queues.items()}
        self.changed, self.compared = digests.judge(found, queues)
        self.state.head = list(self.head) if self.head else []

    def _half(self) -> None:
        if all(queue.name != half.HIDDEN for queue in self.state.queues.values()):
            return
        found = self.mapped(tasks.HalfSteps(self.files), half.DDL)
        before = self.before("state.half", half.DDL)
        if before is not None:
            found = found.unionAll(before.select(found.columns))
        found = found.repartition(max(2, self.records // PART_RECORDS), "part")
        found = found.mapInArrow(tasks.JudgedHalf(self.plan.start), half.DDL)
        self.half = self.store.write(self.spark, "staging.half", found)
        self.store.write(self.spark, "state.half", self.half.where("wrong = ''"))

    def _groups(self) -> None:
        if not self.state.consumer_groups:
            return
        found = self.mapped(tasks.GroupSteps(self.files, group_facts.streams(self.state)), groups.DDL)
        before = self.before("state.groups", groups.DDL)
        if before is not None:
            found = found.unionAll(before.select(found.columns))
        found = found.repartition(max(2, self.records // PART_RECORDS), "stream")
        found = found.mapInArrow(tasks.JudgedGroups(group_facts.facts(self.state, self.plan.start)), groups.DDL)
        self.groups = self.store.write(self.spark, "staging.groups", found)
        self.store.write(self.spark, "state.groups", self.groups.where("wrong = ''"))

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
            records=self.records,
            messages=count,
            bytes=self.plan.bytes,
            worst=worst,
            head=str(self.head or ""),
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
        state.removed = self.noted[1].hex()
        state.policies = self.followed
        state.last_time = self.last_time
        state.compared = max(plan.snapshots, default=state.compared)
        self.store.commit(state)


OPTIONS: Final = Options()


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
