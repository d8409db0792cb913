"""Write large tables as Parquet directly from Spark's Python tasks, which return only the names of their files.

Passing rows through the JVM would cost several times as much as all other work together. Spark may run a task more than
once. A file counts only if Spark took the result of the task that wrote it; all other files are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MANIFEST: Final = pa.schema([("path", pa.string()), ("rows", pa.int64())])
MANIFEST_DDL: Final = "path string, rows long"

_DELTAS: Final = (pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC"))
"""Types of columns that grow slowly or repeat. Their differences take less time to compress than the values."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Sum = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Sums up the rows of a batch."""


@dataclass(frozen=True, slots=True)
class Written:
    """Runs `task`, writes its output below `folder` in partitions `by`, and yields the files' paths and row counts.

    `sums` are pairs of a folder and the sum of each batch that is written there. Their rows do not count.
    """

    task: Task
    folder: str
    by: tuple[str, ...] = ()
    sums: tuple[tuple[str, Sum], ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name = f"part-{uuid4().hex}.parquet"
        writers: dict[str, pq.ParquetWriter] = {}
        rows: dict[str, int] = {}
        try:
            for batch in self.task(batches):
                every = [(str(Path(self.folder, place, name)), part, len(part)) for place, part in self._parts(batch)]
                found = ((folder, sum_(batch)) for folder, sum_ in self.sums)
                every += [(str(Path(folder, name)), part, 0) for folder, part in found if len(part)]
                for path, part, count in every:
                    writer = writers.get(path)
                    if writer is None:
                        writer = writers[path] = _writer(Path(path), part.schema)
                    writer.write_table(pa.Table.from_batches([part]), row_group_size=len(part))
                    rows[path] = rows.get(path, 0) + count
        finally:
            for writer in writers.values():
                writer.close()
        if rows:
            yield pa.RecordBatch.from_pydict({"path": list(rows), "rows": list(rows.values())}, schema=MANIFEST)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not self.by:
            if len(batch):
                yield "", batch
            return
        keys = pa.Table.from_batches([batch]).select(self.by).group_by(list(self.by)).aggregate([]).to_pylist()
        rest = batch.drop_columns(list(self.by))
        for key in keys:
            place = "/".join(f"{name}={'__HIVE_DEFAULT_PARTITION__' if v is None else v}" for name, v in key.items())
            if len(keys) == 1:
                yield place, rest
                continue
            chosen = None
            for name, value in key.items():
                column = batch.column(name)
                same = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
                chosen = same if chosen is None else pc.and_(chosen, same)
            yield place, rest.filter(pc.fill_null(chosen, fill_value=False))


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [field.name for field in schema if pa.types.is_string(field.type) or field.name == "envelope"]
    numbers = [field.name for field in schema if field.type in _DELTAS]
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=texts or False,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
    )


def keep_only(folder: Path, paths: Iterable[str]) -> None:
    """Remove the Parquet files below `folder` that are not among `paths`."""
    kept = set(paths)
    for path in folder.rglob("*.parquet"):
        if str(path) not in kept:
            path.unlink()
