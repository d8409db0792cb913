"""The audit on Spark writes tables, verdict and report, and repeated runs continue on a growing journal."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_targets
from escrowmq.core.records.reservations import Held, HeldRange, encode_held
from escrowmq.pipeline.audit import Audit, audit
from escrowmq.pipeline.findings import of_subjects
from escrowmq.pipeline.gold import IDS
from escrowmq.pipeline.options import Options
from escrowmq.pipeline.planning import NoJournalError
from escrowmq.pipeline.store import Store, StoreError
from escrowmq.pipeline.verdict import Verdict
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from tests.pipeline.identified import of_identities
from tests.pipeline.journals import Scribe
from tests.pipeline.mutations.faults import SINCE_AN_AUDIT
from tests.pipeline.mutations.rewriting import Copy, read
from tests.pipeline.mutations.routes import ROUTE_FAULTS
from tests.pipeline.planted import Expected, all_planted, good, prepare
from tests.pipeline.planted_journals import acquire, arrive, good_links
from tests.pipeline.routed_journals import of_routes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def rows(spark: SparkSession, out: Path, table: str) -> list[dict[str, object]]:
    found = spark.read.parquet(str(out.joinpath(*table.split("."))))
    return [row.asDict() for row in found.collect()]


class Planted(NamedTuple):
    """The audit of a journal with all planted faults: what it must find, its verdict, and the folder of its tables."""

    expected: list[Expected]
    verdict: Verdict
    out: Path


@pytest.fixture(scope="module")
def planted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    folder = tmp_path_factory.mktemp("planted")
    with Scribe(folder / "journal") as scribe:
        expected = list(all_planted(scribe))
    return Planted(expected, audit(folder / "journal", folder / "out", spark=spark), folder / "out")


@pytest.mark.rule("PIPE-5")
def test_all_planted_faults_are_found_in_one_journal(spark: SparkSession, planted: Planted) -> None:
    expected, verdict, out = planted
    found = rows(spark, out, "gold.violations")
    told = {
        (row["rule"], row["name"], f"{row['queue']} {row['position']}" if row["queue"] else f"branch {row['branch']}")
        for row in found
    }
    assert told == {(each.rule, each.name, each.subject) for each in expected}
    told_to_programs = json.loads((out / "verdicts" / "000001.json").read_text())
    assert {key: told_to_programs[key] for key in ("run", "clean", "violations", "lsn", "head")} == {
        "run": 1,
        "clean": False,
        "violations": verdict.violations,
        "lsn": verdict.lsn,
        "head": verdict.head,
    }
    assert sum(rule["broken"] for rule in told_to_programs["rules"]) == verdict.violations
    assert {(each["rule"], each["name"]) for each in told_to_programs["found"]} <= {(a, b) for a, b, _ in told}
    for each in expected:
        (row,) = [
            row for row in found if each.subject in (f"{row['queue']} {row['position']}", f"branch {row['branch']}")
        ]
        lsns = row["lsns"]
        assert isinstance(lsns, list)
        assert each.lsn in lsns
        assert row["explanation"]
    assert verdict.violations == verdict.fresh == len(expected)
    assert not verdict.clean
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"{len(expected)} violations" in page
    for subject, names in of_subjects().items():
        for rule, name in names:
            assert re.search(rf"<td>{rule}</td><td>{name}</td><td>[0-9,]+ {subject}( with [a-z, ]+)?</td>", page), name
    reordered = sum(each.name == "reordered" for each in expected)
    assert re.search(rf"<td>reordered</td><td>[0-9,]+ messages</td><td class=n>{reordered}</td>", page)
    assert "http" not in page.replace("http-equiv", "")  # the page loads nothing from elsewhere


def test_rules_about_deliveries_are_checked_on_messages_with_recorded_deliveries(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Scribe(tmp_path / "journal") as scribe:
        scribe.queue(1, "a")
        scribe.queue(2, "s", **{"x-queue-type": "stream"})
        for queue in (1, 2):
            scribe.publish(queue, 1, 5)
            scribe.frame()
            scribe.deliver(queue, [1, 2])
        scribe.frame()
        scribe.append(Kind.HELD, *encode_held(Held(1, "g", 1, 1, [HeldRange(4, 2, 0)], [])))
    out = tmp_path / "out"
    assert audit(tmp_path / "journal", out, spark=spark).messages == 10
    page = (out / "report.html").read_text(encoding="utf-8")
    for name in ("not marked", "delivered out of order"):
        assert f"<td>{name}</td><td>2 messages with recorded deliveries</td>" in page
    text = "4 messages with recorded deliveries, returns or reservations"
    assert f"<td>delivered again</td><td>{text}</td>" in page
    assert "<td>lost</td><td>10 messages</td>" in page
    assert "2 of 10 messages have recorded deliveries" in page


def die(_: Audit) -> None:
    raise KeyboardInterrupt


def write(scribe: Scribe, part: int) -> None:
    """Write the next part of a journal. It settles messages that the previous part has published."""
    scribe.branch = max(scribe.branch, 10 * part)
    first = 10 * part + 1
    scribe.publish(1, first, 10)
    scribe.commit(scribe.published([(2, part + 1)], [b"one"]))
    scribe.frame()
    if part:
        scribe.settle(1, range(first - 10, first - 2))
        scribe.settle(2, [part], Outcome.REJECTED)
        scribe.frame()


@pytest.mark.rule("PIPE-4")
def test_runs_add_up_and_a_killed_one_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    with Scribe(journal) as scribe:
        scribe.queue(1, "a")
        scribe.queue(2, "b")
        write(scribe, 0)
    first = audit(journal, out, spark=spark)
    assert (first.clean, first.messages, first.run) == (True, 11, 1)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "proved within the log only" in page
    assert "the last frame, at LSN 0x0, has no later one" in page
    assert "<td>not marked</td><td>none: no deliveries are recorded</td>" in page
    assert "0 of 11 messages have recorded deliveries" in page
    with Scribe(journal) as scribe:
        write(scribe, 1)
    with monkeypatch.context() as patch:  # the run ends after everything is written, before it is committed
        patch.setattr(Audit, "_commit", die)
        with pytest.raises(KeyboardInterrupt):
            audit(journal, out, spark=spark)
    second = audit(journal, out, spark=spark)
    assert (second.clean, second.run, second.records) == (True, 2, 6)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "the log the one that the last run saw" in page
    assert "proved for 2 frames" in page
    with Scribe(journal) as scribe:
        write(scribe, 2)
        scribe.frame()
        write(scribe, 3)
        scribe.frame()
        third = audit(journal, out, spark=spark)
        assert (third.clean, third.records) == (True, 9)  # the last frame is not read while the journal is open
        whole = audit(journal, tmp_path / "whole", spark=spark)
    assert whole.clean

    def messages(folder: Path) -> list[tuple[object, ...]]:
        names = ("queue", "position", "outcome", "publish_lsn", "settle_lsn", "bytes", "state", "published_at")
        return sorted((tuple(row[name] for name in names) for row in rows(spark, folder, "silver.messages")), key=str)

    assert messages(out) == messages(tmp_path / "whole")
    for table in ("silver.branches", "gold.throughput", "gold.latency", "bronze.records"):
        found, expected = (
            sorted(str({**row, "run": 0}) for row in rows(spark, folder, table)) for folder in (out, tmp_path / "whole")
        )
        assert found == expected, table


@pytest.mark.rule("DUR-1")
def test_a_snapshot_taken_where_a_run_stopped_is_compared_once(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    with Scribe(journal) as scribe:
        scribe.queue(1, "a")
        scribe.publish(1, 1, 4)
        scribe.frame()
        scribe.settle(1, [1])
    assert audit(journal, out, spark=spark).clean
    with Scribe(journal) as scribe:
        scribe.snapshot({1: [(1, 2), (4, 1)]})
    audit(journal, out, spark=spark)
    again = audit(journal, out, spark=spark)
    found = sorted((row["name"], row["position"]) for row in rows(spark, out, "gold.violations"))
    assert found == [("came back", 1), ("lost", 3)]
    assert again.fresh == 0


def test_a_folder_belongs_to_one_journal(spark: SparkSession, tmp_path: Path) -> None:
    with Scribe(tmp_path / "journal") as scribe:
        scribe.queue(1, "a")
    store = Store(tmp_path / "out")
    state = store.state
    state.journal_id = "another"
    store.folder.mkdir()
    store.commit(state)
    with pytest.raises(StoreError, match="another journal"):
        Audit(spark, tmp_path / "journal", Store(tmp_path / "out"), Options(), print)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(NoJournalError, match="no journal here"):
        Audit(spark, tmp_path / "nothing", Store(tmp_path / "out"), Options(), print)


def test_a_log_shorter_than_in_an_earlier_run_is_a_violation(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    with Scribe(journal) as scribe:
        scribe.queue(1, "a")
    shutil.copytree(journal, tmp_path / "before")
    with Scribe(journal) as scribe:
        scribe.publish(1, 1, 3)
    assert audit(journal, out, spark=spark).clean
    verdict = audit(tmp_path / "before", out, spark=spark)
    (row,) = rows(spark, out, "gold.violations")
    assert (row["rule"], row["name"]) == ("DUR-1", "lost")
    assert not verdict.clean
    assert json.loads((out / "state.json").read_text())["run"] == 2
    again = audit(tmp_path / "before", out, spark=spark)
    assert (again.violations, again.fresh) == (1, 0)


def test_the_broker_may_delete_segments_while_they_are_read(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with Scribe(journal, segment_bytes=4096) as scribe:
        for queue in range(1, 20):
            scribe.queue(queue, f"q{queue}")
            good(scribe, queue)

    def delete(stage: str) -> None:
        if stage.startswith("bronze"):
            for path in sorted(journal.glob("*.log"))[:-1]:
                path.unlink()

    verdict = audit(journal, tmp_path / "out", spark=spark, progress=delete)
    assert (verdict.clean, verdict.messages) == (True, 19 * 7)


def test_a_run_starts_over_if_deleted_segments_cannot_be_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("escrowmq.pipeline.pinning._OPEN", tmp_path / "no proc here")
    journal = tmp_path / "journal"
    with Scribe(journal, segment_bytes=4096) as scribe:
        for queue in range(1, 20):
            scribe.queue(queue, f"q{queue}")
            good(scribe, queue)
    first = min(journal.glob("*.log"))
    away = tmp_path / first.name
    stages: list[str] = []

    def delete(stage: str) -> None:
        stages.append(stage)
        if stage.endswith("starting over"):
            away.rename(first)
        elif stage.startswith("bronze") and stages.count(stage) == 1:
            first.rename(away)

    verdict = audit(journal, tmp_path / "out", spark=spark, progress=delete)
    assert (verdict.clean, verdict.messages) == (True, 19 * 7)
    assert len([stage for stage in stages if stage.endswith("starting over")]) == 1


def test_times_do_not_depend_on_the_sessions_time_zone_and_timestamp_type(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with Scribe(journal) as scribe:
        scribe.queue(1, "a")
        scribe.publish(1, 1, 2)
        scribe.frame()
        scribe.now_us = int(time.time() - 2 * 3600) * 1_000_000
        prepare(scribe, 1, 1)
    session = spark.newSession()
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    # A misread time would be hours too early in one of these zones, and hours too late in the other.
    for zone, limit, late in (("Asia/Kolkata", 3 * 3600.0, 0), ("America/New_York", 3600.0, 1)):
        session.conf.set("spark.sql.session.timeZone", zone)
        verdict = audit(journal, tmp_path / f"{late} late", spark=session, options=Options(prepared_seconds=limit))
        assert (verdict.undecided, verdict.violations) == (1, late)


@pytest.mark.rule("SET-9", "SET-10")
def test_faults_of_links_are_found_across_runs_and_late_deliveries_while_they_are_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    with Scribe(journal) as scribe:
        scribe.now_us = int(time.time() - 2 * 3600) * 1_000_000
        good_links(scribe)
        acquire(scribe, 2, 5, 4)
    assert audit(journal, out, spark=spark).clean
    with Scribe(journal) as scribe:
        scribe.now_us = int(time.time()) * 1_000_000
        acquire(scribe, 4, 1, 4)
        arrive(scribe, 2, 5, b"a")
        scribe.settle(1, [3])
    verdict = audit(journal, out, spark=spark, options=Options(unsettled_seconds=3600))
    found = sorted(
        (row["rule"], row["name"], row["queue"], row["position"]) for row in rows(spark, out, "gold.violations")
    )
    assert found == [
        ("PIPE-5", "unsettled too long", None, None),
        ("SET-10", "acquired twice", "q", 4),
        ("SET-9", "arrived twice", None, None),
    ]
    assert (verdict.violations, verdict.fresh) == (3, 3)
    assert audit(journal, out, spark=spark).violations == 2


@pytest.mark.rule("PIPE-8")
def test_wrong_routes_are_found_across_runs(spark: SparkSession, tmp_path: Path) -> None:
    """The second run continues with the exchanges and bindings of the first."""
    journal, out, options = tmp_path / "journal", tmp_path / "out", Options(routing=1.0)
    whole = _routed(tmp_path / "whole")
    end = next(i for i, frame in enumerate(whole.frames) if len(frame.records) > 50)
    Copy(whole.journal_id, whole.frames[:end], []).write(journal)
    assert audit(journal, out, spark=spark, options=options).clean
    wrong = next(ROUTE_FAULTS["published to a queue more"](Copy(whole.journal_id, whole.frames, []), random.Random(1)))
    wrong.write(journal)
    verdict = audit(journal, out, spark=spark, options=options)
    found = [row for row in rows(spark, out, "gold.violations") if row["name"] != "record changed"]
    assert [row["name"] for row in found] == ["routed wrongly"]
    assert verdict.violations > len(found)  # the digests of the frames show the change as well
    assert found[0]["queue"] == "stray"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<td>Routes</td><td>\d+ messages were routed again</td>", page)


def _routed(folder: Path) -> Copy:
    of_routes(folder)
    return read(folder)


def test_a_violation_links_to_the_life_of_its_message(spark: SparkSession, tmp_path: Path) -> None:
    of_identities(tmp_path / "valid")
    journal, out = read(tmp_path / "valid"), tmp_path / "out"
    frame, i = journal.records(Kind.SETTLE)[0]
    frame.records.append(frame.records[i].twin())
    journal.write(tmp_path / "journal")
    audit(tmp_path / "journal", out, spark=spark, options=Options())
    lives = sorted(rows(spark, out, "gold.lives"), key=lambda row: str(row["lsn"]))
    assert {(row["queue"], row["position"]) for row in lives} == {("orders", 1)}
    assert [row["message_id"] for row in lives if row["what"] == "published"] == ["m-0"]
    assert sum(row["what"] == "left its queue: accepted" for row in lives) == 2
    page = (out / "report.html").read_text(encoding="utf-8")
    assert '<a href="#message-1">orders 1</a></td><td>m-0</td><td>c-0</td><td>ann</td>' in page
    assert "<h3 id=message-1>orders 1</h3>" in page
    wrong = [identity(row) for row in rows(spark, out, "gold.violations") if row["position"] is not None]
    assert wrong == [("orders", 1, "m-0", "c-0", "ann")]
    shown = json.loads((out / "verdicts" / "000001.json").read_text())["found"]
    assert [identity(each) for each in shown if each["position"] is not None] == wrong


def identity(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("queue", "position", "message_id", "correlation_id", "publisher"))


def test_messages_have_columns_of_their_ids_and_publishers(spark: SparkSession, tmp_path: Path) -> None:
    """In the first run the second message is open. In the second run both are settled, the first one again."""
    journal, out = tmp_path / "journal", tmp_path / "out"
    with Scribe(journal) as scribe:
        scribe.queue(1, "orders")
        scribe.append(
            Kind.PUBLISH, encode_targets([(1, 1)]), *encode_block(7, Envelope("", "q", protocol=PACKED), told(2))
        )
        scribe.settle(1, [1])
    assert audit(journal, out, spark=spark).clean
    every = [("orders", i, f"m-{i}", f"c-{i}", "ann") for i in (1, 2)]
    assert sorted(map(identity, rows(spark, out, "silver.messages"))) == every
    with Scribe(journal) as scribe:
        scribe.settle(1, [1, 2])
    assert not audit(journal, out, spark=spark, options=Options(ids=False)).clean
    found = {identity(row) for row in rows(spark, out, "silver.messages") if row["message_id"] is not None}
    assert sorted(found) == every
    wrong = [(row["name"], *identity(row)) for row in rows(spark, out, "gold.violations")]
    assert wrong == [("settled twice", *every[0])]


def test_every_table_of_messages_has_columns_of_ids_and_is_in_the_guide(spark: SparkSession, planted: Planted) -> None:
    paths = [path for layer in ("silver", "gold") for path in (planted.out / layer).iterdir()]
    tables = {f"{path.parent.name}/{path.name}": path for path in paths}
    of_messages = {name for name, path in tables.items() if "position" in spark.read.parquet(str(path)).columns}
    assert of_messages == {"silver/messages", "gold/violations", "gold/lives"}
    for name in of_messages:
        assert set(IDS) <= set(spark.read.parquet(str(tables[name])).columns), name
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "auditing.md").read_text(encoding="utf-8")
    assert {name for name in tables if f"\n| `{name}` |" not in guide} == set()


def told(count: int) -> list[bytes]:
    """Return packed contents with ids."""
    return [
        pack(Properties(message_id=f"m-{i}", correlation_id=f"c-{i}", user_id="ann").encode(), b"body")
        for i in range(1, count + 1)
    ]


def test_columns_of_ids_are_empty_if_they_are_not_wanted(spark: SparkSession, tmp_path: Path) -> None:
    of_identities(tmp_path / "journal")
    assert audit(tmp_path / "journal", tmp_path / "out", spark=spark, options=Options(ids=False)).clean
    found = rows(spark, tmp_path / "out", "silver.messages")
    assert sorted({identity(row)[2:] for row in found}) == [(None, None, None)]


@pytest.mark.rule("PIPE-8")
def test_a_record_changed_between_two_runs_is_found_by_the_stored_head(spark: SparkSession, tmp_path: Path) -> None:
    """The change is in the last frame: no digest stands behind it, and no rule about messages is broken."""
    journal, out = tmp_path / "journal", tmp_path / "out"
    of_identities(tmp_path / "whole")
    whole = read(tmp_path / "whole")
    end = next(i for i, frame in enumerate(whole.frames) if any(r.kind == Kind.PUBLISH for r in frame.records))
    cut = Copy(whole.journal_id, whole.frames[: end + 1], [])
    cut.write(journal)
    assert audit(journal, out, spark=spark).clean
    changed = next(SINCE_AN_AUDIT["body altered"].plant(cut, random.Random(1)))
    changed.write(journal)
    assert audit(journal, tmp_path / "alone", spark=spark).clean
    verdict = audit(journal, out, spark=spark)
    assert [row["name"] for row in rows(spark, out, "gold.violations")] == ["log changed"]
    assert verdict.violations == verdict.fresh == 1
