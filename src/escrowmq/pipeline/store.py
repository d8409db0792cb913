"""Store the audit's tables and state in a folder. A run takes effect only when its state is written.

Every table is partitioned by `run`. A killed run leaves partitions with its number. The next run has the same number
and replaces them, so a second attempt produces the same tables as the first.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from escrowmq.pipeline.writing import MANIFEST_DDL, Sum, Task, Written, keep_only

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = 8
STATE: Final = "state.json"
LOCK: Final = "lock"
GROWING: Final = frozenset({"bronze.records", "silver.messages", "silver.branches"})
"""Tables to which every run adds rows. The latest partition of any other table contains all of it."""
OURS: Final = frozenset({"bronze", "silver", "gold", "state", "staging", "lake", "report", "spark", "verdicts", LOCK})
"""The names of our files and folders, without a suffix that follows a dot."""


class StoreError(Exception):
    """The folder of the tables, or their format, cannot be used; the text says why."""


@dataclass(slots=True)
class Queue:
    """A queue named in the journal. `deleted` contains LSN, frame's LSN and time (µs) of its deletion."""

    vhost: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    deleted: tuple[int, int, int] | None = None
    since: int = 0
    """The LSN of its declaration, or of the first snapshot that contains it."""
    published: int = 0
    """The highest position that was published."""
    first: int = 0
    """The lowest position published in the part of the log without gaps; 0 if there is none so far."""
    handed: tuple[int, int, int] = (0, 0, 0)
    """The position below which messages may have been handed out, with LSN and frame's LSN of the first record that
    says so.
    """
    delivered: dict[str, list[int]] = field(default_factory=dict)
    """For each priority by which the queue is ordered, the highest position delivered, and the record's LSN."""
    logged: bool = False
    """Whether the log shows its declaration, and not only a snapshot."""
    declared: bool = True
    """Whether its arguments are known. The part of the log that declared it may have been deleted."""


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group named in the journal. `terms` contains the LSN, the most attempts and the dead-letter topic of
    each change of its options.
    """

    vhost: str
    name: str
    deleted: bool = False
    terms: list[tuple[int, int, str]] = field(default_factory=list)


@dataclass(slots=True)
class State:
    """The state of the tables after a run, from which the next run continues."""

    journal_id: str = ""
    run: int = 0
    lsn: int = 0
    start: int = 0
    queues: dict[int, Queue] = field(default_factory=dict)
    holes: list[tuple[int, int]] = field(default_factory=list)
    last_time: int = 0
    compared: int = -1
    """The LSN of the latest snapshot that was compared with the log, -1 if there is none."""
    groups: dict[str, list[int]] = field(default_factory=dict)
    epochs: dict[str, list[int]] = field(default_factory=dict)
    """The numbers of bulk readers' groups and the epochs of applications (`pipeline.sequences`)."""
    termini: dict[str, list[Any]] = field(default_factory=dict)
    """For each number of a link terminus its title, and the LSN of its deletion, 0 if it was not deleted."""
    acquired: list[int] = field(default_factory=list)
    """The queues from which link termini have acquired messages."""
    durable_links: dict[str, list[Any]] = field(default_factory=dict)
    """For each number of a terminus that acquires messages before they are delivered: its virtual host, the name of its
    link as a consumer, and the LSN since which it does.
    """
    names: dict[str, int] = field(default_factory=dict)
    """The names that exist (`pipeline.names`)."""
    names_whole: bool = False
    """Whether these are all. Runs of older versions did not know those with numbers."""
    head: list[Any] = field(default_factory=list)
    """The fields of the head of the log (`pipeline.chain`)."""
    removed: str = ""
    """The newest record of removed segments, in hexadecimal (`pipeline.removals`)."""
    topology: int = -1
    """The LSN from which the changes of exchanges, queues and bindings are known; -1 if they are not."""
    set_back: list[int] = field(default_factory=list)
    """The LSNs of frames that are about a day older than the frame before."""
    policies: dict[str, list[list[Any]]] = field(default_factory=dict)
    """The policies that queues follow, by virtual host (`pipeline.policies`)."""
    consumer_groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    """The consumer groups by number."""


class Store:
    """The tables in one folder."""

    def __init__(self, folder: Path, format_: str = "parquet") -> None:
        self.folder = folder
        self.format = format_
        self.written: dict[str, DataFrame] = {}
        """The tables that this run has written with `write`."""
        self.state = _load(folder / STATE)
        if not self.state.run:
            others = sorted(path.name for path in folder.glob("*") if path.name.partition(".")[0] not in OURS)
            if others:
                raise StoreError(
                    f"{folder} contains other files, such as {others[0]}; use a separate folder for the tables"
                )

    def check(self, journal_id: str) -> None:
        """Check that the tables belong to the journal with this ID.

        Raises:
            StoreError: they belong to another journal.
        """
        if self.state.run and journal_id != self.state.journal_id:
            raise StoreError(f"{self.folder} contains tables of another journal; use another folder")

    @property
    def run(self) -> int:
        """The number of the current run."""
        return self.state.run + 1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for the duration of the block, and reload the state.

        Raises:
            StoreError: another audit has locked the folder.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # as private as the journal
        with (self.folder / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"another audit is writing to {self.folder}; wait for it to end") from None
            self.state = _load(self.folder / STATE)
            yield

    def path(self, table: str) -> Path:
        """Return the folder of a table: `silver.messages` → `silver/messages`."""
        return self.folder.joinpath(*table.split("."))

    def write(self, spark: SparkSession, table: str, frame: DataFrame, *by: str) -> DataFrame:
        """Write this run's partition of a table, and return it as read back from there.

        `by` are columns by which the run's partition is divided further.
        """
        writer = frame.write.format(self.format).mode("overwrite")
        if by:
            writer = writer.partitionBy(*by)
        path = str(self.path(table) / f"run={self.run}")
        writer.save(path)
        self.written[table] = found = spark.read.format(self.format).schema(frame.schema).load(path)
        return found

    def fill(
        self,
        spark: SparkSession,
        table: str,
        source: DataFrame,
        task: Task,
        schema: str,
        *by: str,
        sums: Mapping[str, Sum] = MappingProxyType({}),
    ) -> tuple[DataFrame, int]:
        """Write this run's partition of a large table, whose rows never pass through the JVM.

        Args:
            spark: the session.
            table: the table's name.
            source: the input of `task`.
            task: makes the table's rows; executors write them directly to files.
            schema: the table's schema as DDL.
            by: columns by which the run's partition is divided further.
            sums: for each table of sums, the sum of a batch of rows that is written there (`path`).

        Returns the partition as read back, and the number of rows.
        """
        folders = {name: (self.path(name) / f"run={self.run}").absolute() for name in (table, *sums)}
        for each in folders.values():
            shutil.rmtree(each, ignore_errors=True)
            each.mkdir(parents=True)
        folder = folders[table]
        summed = tuple((str(folders[name]), sum_) for name, sum_ in sums.items())
        written = source.mapInArrow(Written(task, str(folder), by, summed), MANIFEST_DDL).collect()
        for each in folders.values():
            keep_only(each, (row.path for row in written))
        return spark.read.schema(schema).parquet(str(folder)), sum(row.rows for row in written)

    def read(self, spark: SparkSession, table: str, *, run: int, schema: str | None = None) -> DataFrame | None:
        """Return the partition that a run has written; None if it does not exist.

        `schema` is required for tables whose partition may contain no files.
        """
        path = self.path(table) / f"run={run}"
        if not path.exists():
            return None
        reader = spark.read.format(self.format)
        return (reader.schema(schema) if schema else reader).load(str(path))

    def history(self, spark: SparkSession, table: str, schema: str) -> DataFrame:
        """Return the rows of one of the GROWING tables that all earlier runs have written."""
        path = self.path(table)
        runs = [str(path / f"run={run}") for run in range(1, self.run) if (path / f"run={run}").exists()]
        if not runs:
            return spark.createDataFrame([], schema)
        reader = spark.read.format(self.format).schema(schema).option("basePath", str(path))
        return reader.load(runs)

    def discard(self) -> None:
        """Remove the partitions of a killed run, and those that committed runs have replaced."""
        for path in self.folder.glob("*/*/run=*"):
            run = int(path.name.partition("=")[2])
            table = f"{path.parent.parent.name}.{path.parent.name}"
            if run > self.state.run or (run < self.state.run and table not in GROWING):
                shutil.rmtree(path)
            elif run < self.state.run:
                shutil.rmtree(path / "state=open", ignore_errors=True)

    def commit(self, state: State) -> None:
        """Write the state durably, which makes the run take effect, and remove replaced partitions."""
        state.run = self.run
        fresh = self.folder / f"{STATE}.{os.getpid()}"
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({"version": VERSION, **asdict(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.folder / STATE)
        self.state = state
        self.discard()


def _load(path: Path) -> State:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return State()
    except ValueError as error:
        raise StoreError(f"{path} is damaged: {error}; remove the folder and audit from the start") from error
    if values.pop("version", None) != VERSION:
        raise StoreError(f"{path} was written by another version; use another folder")
    queues = {int(ident): Queue(**fields) for ident, fields in values.pop("queues").items()}
    for queue in queues.values():
        queue.deleted = tuple(queue.deleted) if queue.deleted else None  # type: ignore[assignment]
        queue.handed = tuple(queue.handed)  # type: ignore[assignment]
    groups = {number: ConsumerGroup(**fields) for number, fields in values.pop("consumer_groups", {}).items()}
    for group in groups.values():
        group.terms = [(lsn, most, topic) for lsn, most, topic in group.terms]
    holes = [(begin, end) for begin, end in values.pop("holes")]
    return State(queues=queues, holes=holes, consumer_groups=groups, **values)
