"""Where the tables lie, and how far they go: a run counts once its state is written, and not before.

Every table is partitioned by `run`. A run that was killed leaves partitions with its number; the next one has the same
number and replaces them. So a second attempt gives the same as a first one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from escrowmq.pipeline.writing import MANIFEST_DDL, Task, Written, keep_only

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = 5
STATE: Final = "state.json"
LOCK: Final = "lock"
GROWING: Final = frozenset({"bronze.records", "silver.messages", "silver.branches"})
"""Tables to which every run adds; the others are whole in the latest run's partition."""
OURS: Final = frozenset({"bronze", "silver", "gold", "state", "staging", "lake", "report", LOCK})
"""What lies in the folder; behind a dot there may follow more."""


class StoreError(Exception):
    """The folder cannot be used; the text says why."""


@dataclass(slots=True)
class Queue:
    """A queue that the journal spoke of. `deleted`: LSN, frame's LSN and time (µs) of its deletion."""

    vhost: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    deleted: tuple[int, int, int] | None = None
    published: int = 0
    """The highest position that was published."""
    first: int = 0
    """The lowest position of which the log without gaps tells; 0: of none so far."""
    handed: tuple[int, int, int] = (0, 0, 0)
    """Below this position it may have been handed out; LSN and frame's LSN of the record that said so first."""
    delivered: dict[str, list[int]] = field(default_factory=dict)
    """Of each priority that orders it, the highest position that was delivered, and the LSN."""
    declared: bool = True
    """Whether its arguments are known: the part of the log that declared it may be gone."""


@dataclass(slots=True)
class State:
    """How far the tables go."""

    journal_id: str = ""
    run: int = 0
    lsn: int = 0
    start: int = 0
    queues: dict[int, Queue] = field(default_factory=dict)
    holes: list[tuple[int, int]] = field(default_factory=list)
    last_time: int = 0
    compared: int = -1
    """The latest snapshot that was compared with the log."""
    groups: dict[str, list[int]] = field(default_factory=dict)
    epochs: dict[str, list[int]] = field(default_factory=dict)
    """How far bulk readers and applications have come (`pipeline.sequences`)."""


class Store:
    """The tables in one folder."""

    def __init__(self, folder: Path, format_: str = "parquet") -> None:
        self.folder = folder
        self.format = format_
        self.written: dict[str, DataFrame] = {}
        """What this run has written by `write`, as it is read back."""
        self.state = _load(folder / STATE)
        if not self.state.run:
            others = sorted(path.name for path in folder.glob("*") if path.name.partition(".")[0] not in OURS)
            if others:
                raise StoreError(
                    f"{folder} has other things in it, as {others[0]}; give the tables a folder of their own"
                )

    def check(self, journal_id: str) -> None:
        """Raises StoreError if the tables are about another journal."""
        if self.state.run and journal_id != self.state.journal_id:
            raise StoreError(f"{self.folder} is about another journal; use another folder")

    @property
    def run(self) -> int:
        """The number of the run that is under way."""
        return self.state.run + 1

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from writing here. Raises StoreError if somebody does already."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # as private as the journal
        with (self.folder / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"another audit is writing to {self.folder}; wait for it to end") from None
            self.state = _load(self.folder / STATE)
            yield

    def path(self, table: str) -> Path:
        """Where a table lies: `silver.messages` → `silver/messages`."""
        return self.folder.joinpath(*table.split("."))

    def write(self, spark: SparkSession, table: str, frame: DataFrame, *by: str) -> DataFrame:
        """What this run has for a table, in partitions `by` within the run's; read it back from there."""
        writer = frame.write.format(self.format).mode("overwrite")
        if by:
            writer = writer.partitionBy(*by)
        path = str(self.path(table) / f"run={self.run}")
        writer.save(path)
        self.written[table] = found = spark.read.format(self.format).schema(frame.schema).load(path)
        return found

    def fill(
        self, spark: SparkSession, table: str, source: DataFrame, task: Task, schema: str, *by: str
    ) -> tuple[DataFrame, int]:
        """The same for a large table: `task` makes its rows from those of `source`, and writes them right there. Also
        says how many there are.
        """
        folder = (self.path(table) / f"run={self.run}").absolute()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        written = source.mapInArrow(Written(task, str(folder), by), MANIFEST_DDL).collect()
        keep_only(folder, (row.path for row in written))
        return spark.read.schema(schema).parquet(str(folder)), sum(row.rows for row in written)

    def read(self, spark: SparkSession, table: str, *, run: int, schema: str | None = None) -> DataFrame | None:
        """What a run has written, None if there is nothing; `schema` is needed where all of it may be gone."""
        path = self.path(table) / f"run={run}"
        if not path.exists():
            return None
        reader = spark.read.format(self.format)
        return (reader.schema(schema) if schema else reader).load(str(path))

    def history(self, spark: SparkSession, table: str, schema: str) -> DataFrame:
        """What all runs before have written for a table that grows."""
        path = self.path(table)
        runs = [str(path / f"run={run}") for run in range(1, self.run) if (path / f"run={run}").exists()]
        if not runs:
            return spark.createDataFrame([], schema)
        reader = spark.read.format(self.format).schema(schema).option("basePath", str(path))
        return reader.load(runs)

    def discard(self) -> None:
        """Remove what a run that was killed has left: of its own tables, and of those that it had replaced."""
        for path in self.folder.glob("*/*/run=*"):
            run = int(path.name.partition("=")[2])
            table = f"{path.parent.parent.name}.{path.parent.name}"
            if run > self.state.run or (run < self.state.run and table not in GROWING):
                shutil.rmtree(path)
            elif run < self.state.run:
                shutil.rmtree(path / "state=open", ignore_errors=True)

    def commit(self, state: State) -> None:
        """The run counts from now on."""
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
    holes = [(begin, end) for begin, end in values.pop("holes")]
    return State(queues=queues, holes=holes, **values)
