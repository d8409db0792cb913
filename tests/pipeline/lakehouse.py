"""Run `escrowmq audit` with Delta and Iceberg tables in a separate process, because they need another PySpark.

`python -m tests.pipeline.lakehouse FORMATS FOLDER STEP` executes one step; test_lake.py determines their order.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click
import pytest

from escrowmq.pipeline import lake
from escrowmq.pipeline.audit import Audit
from escrowmq.pipeline.command import audit
from escrowmq.pipeline.session import session
from tests.pipeline.journals import Scribe
from tests.pipeline.test_audit import write

QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""The settings of the session that the other tests use."""


def die(self: Audit) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class House:
    """A journal, the folder of its audit, and the session's settings for one of the formats."""

    def __init__(self, format_: str, folder: Path) -> None:
        self.format = format_
        folder.mkdir(exist_ok=True)
        self.journal, self.out = folder / "journal", folder / "out"
        jars = ",".join(map(str, sorted(Path(sys.prefix, "lake", "jars").glob("*.jar"))))
        self.conf = {**QUICK, "spark.jars": jars}
        if format_ == "delta":
            self.conf["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
            self.conf["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        else:
            self.conf["spark.sql.catalog.house"] = "org.apache.iceberg.spark.SparkCatalog"
            self.conf["spark.sql.catalog.house.type"] = "hadoop"
            self.conf["spark.sql.catalog.house.warehouse"] = str(folder / "warehouse")

    def grow(self, part: int) -> None:
        """Append a part to the journal. It settles messages that the previous part has published."""
        with Scribe(self.journal) as scribe:
            if not part:
                scribe.queue(1, "a")
                scribe.queue(2, "b")
            write(scribe, part)

    def audit(self, *more: str, journal: Path | None = None) -> None:
        """Run the command, and expect the verdict CLEAN."""
        conf = [f"--conf={name}={value}" for name, value in self.conf.items()]
        options = [f"--out={self.out}", "--master=local[2]", "--no-nice", "--quiet", *conf, *more]
        assert audit.main([str(journal or self.journal), *options], standalone_mode=False) == 0

    def compare(self, messages: int, waiting: int) -> None:
        """Check that each table has the same rows as the Parquet table, and the numbers of messages."""
        spark = session("local[2]", conf=self.conf)
        for table in lake.TABLES:
            parts = table.split(".")
            kept = spark.read.parquet(str(self.out.joinpath(*parts)))
            if self.format == "delta":
                told = spark.read.format("delta").load(str(self.out.joinpath("lake", *parts)))
            else:
                told = spark.table(f"house.{table}")
            assert sorted(kept.columns) == sorted(told.columns)
            rows = sorted(str(row) for row in told.select(kept.columns).collect())
            assert rows == sorted(str(row) for row in kept.collect()), table
            if table == "silver.messages":
                assert (len(rows), told.where("state = 'open'").count()) == (messages, waiting)
        spark.stop()


def short(house: House) -> None:
    """Do a first run, and a second one that replaces the open rows."""
    for part in range(2):
        house.grow(part)
        house.audit(f"--format={house.format}")
    house.compare(22, 13)


def first(house: House) -> None:
    """Do a first run, and a second one that is killed after it has written all tables, before it is committed."""
    house.grow(0)
    house.audit(f"--format={house.format}")
    house.grow(1)
    Audit._commit = die  # type: ignore[method-assign]
    house.audit(f"--format={house.format}")


def second(house: House) -> None:
    """Repeat the killed run; do a third one without these tables; kill a fourth one that uses the default source."""
    house.audit(f"--format={house.format}")
    house.compare(22, 13)
    house.grow(2)
    house.audit()
    house.grow(3)
    Audit._commit = die  # type: ignore[method-assign]
    house.audit(f"--conf=spark.sql.sources.default={house.format}")


def third(house: House) -> None:
    """Repeat the killed run. Files of Iceberg now contain rows of several runs and cannot be replaced in part."""
    house.audit(f"--conf=spark.sql.sources.default={house.format}")
    house.compare(44, 17)
    if house.format == "iceberg":
        another(house)


def another(house: House) -> None:
    """Check that the audit of another journal does not touch these tables."""
    journal = house.journal.with_name("another")
    with Scribe(journal, journal_id=b"another journal.") as scribe:
        scribe.queue(1, "a")
    with pytest.raises(click.ClickException, match=r"house\.silver\.messages does not belong to this journal"):
        house.audit("--format=iceberg", f"--out={house.out}-another", journal=journal)
    house.compare(44, 17)


STEPS = {"short": short, "first": first, "second": second, "third": third}

if __name__ == "__main__":
    for each in sys.argv[1].split(","):
        STEPS[sys.argv[3]](House(each, Path(sys.argv[2], each)))
