"""Events are the records of the journal, each once, also for listeners that come again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from escrowmq.admin.http.broker import BrokerUnavailable
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.evidence import events, log
from tests.unit.evidence.sites import FileSite
from tests.unit.evidence.test_log import damaged, journal_with
from tests.unit.inspection.journals import Writer

EVENT = re.compile(r"(?:id: (\d+)\n)?event: (\w+)\ndata: (.*)\n\n")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD", 0.0)


class Ends:
    """Answers where the log is on disk, with each of `ends` in turn. Then the broker is gone."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)

    async def __call__(self, operation: str) -> int:
        assert operation == "journal.synced"
        if not self.ends:
            raise BrokerUnavailable("gone")
        return self.ends.pop(0)


def told(
    folder: Path, ask: Any, after: int | None = 0, kinds: Collection[int] = events.CHANGES
) -> list[tuple[str, str, Any]]:
    """Return id, name and fields of all events until the stream ends."""

    async def collect() -> bytes:
        return b"".join([part async for part in events.stream(folder, ask, after, kinds)])

    return [(ident, name, json.loads(data)) for ident, name, data in EVENT.findall(asyncio.run(collect()).decode())]


def end_of(folder: Path) -> int:
    return log.after(folder, 0, most=10_000).lines[-1].lsn + (1 << 20)


def declare(writer: Writer, name: str) -> None:
    writer.sync((Kind.QUEUE_DECLARED, [encode_change(vhost="/", id=1, name=name, auto_delete=False, arguments={})]))


def test_every_record_of_the_kinds_is_one_event_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PIECE", 3)
    folder = journal_with(tmp_path, 10)
    end = end_of(folder)
    found = told(folder, Ends(*[end] * 20))
    assert [(name, fields["name"]) for _, name, fields in found] == [("QUEUE_DECLARED", f"q{i}") for i in range(10)]
    assert [int(ident) for ident, _, _ in found] == [
        line.lsn for line in log.after(folder, 0, {Kind.QUEUE_DECLARED}).lines
    ]


def test_a_listener_that_comes_again_gets_what_follows_its_last_event(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 10)
    end, kinds = end_of(folder), {Kind.QUEUE_DECLARED, Kind.PUBLISH}
    whole = told(folder, Ends(end, end), kinds=kinds)
    assert len(whole) == 20
    for i, (ident, _, _) in enumerate(whole):
        assert told(folder, Ends(end, end), int(ident), kinds) == whole[i + 1 :]


def test_nothing_is_told_before_it_is_on_disk(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 4)
    lines = log.after(folder, 0).lines
    assert told(folder, Ends(*[lines[5].lsn] * 3)) == told(folder, Ends(*[end_of(folder)] * 3))[:2]


def test_a_stream_begins_with_what_happens_after_it_was_asked_for(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    declare(writer, "before")
    ends = Ends(writer.journal.synced_lsn)
    declare(writer, "after")
    ends.ends.append(writer.journal.synced_lsn)
    assert [fields["name"] for _, _, fields in told(tmp_path, ends, None)] == ["after"]
    writer.journal.close()


def test_a_part_of_the_log_that_is_gone_or_damaged_is_an_event(tmp_path: Path) -> None:
    folder = journal_with(tmp_path / "gone", 10)
    first, second = sorted(folder.glob("*.log"))[:2]
    first.unlink()
    found = told(folder, Ends(*[end_of(folder)] * 3), 200)
    assert found[0] == ("", "gone", {"from": 200, "to": int(second.stem, 16)})
    assert found[-1][2]["name"] == "q9"
    folder = damaged(journal_with(tmp_path / "damaged", 10))
    name = told(folder, Ends(*[end_of(folder)] * 9))[-1][1]
    assert name == "damage"


def test_silence_is_broken_by_comments_and_a_stream_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = journal_with(tmp_path, 1)
    monkeypatch.setattr(events, "HEARTBEAT", 0.0)
    monkeypatch.setattr(events, "LONGEST", 0.05)

    async def collect() -> list[bytes]:
        async def ask(_: str) -> int:
            return 0

        return [part async for part in events.stream(folder, ask, 0, events.CHANGES)]

    parts = asyncio.run(collect())
    assert set(parts) == {b"retry: 2000\n\n", b": nothing new\n\n"}


@pytest.mark.parametrize("query", ["?kind=nonsense", "?from=x"])
def test_a_query_that_makes_no_sense_is_refused(tmp_path: Path, query: str) -> None:
    assert FileSite(journal_with(tmp_path, 1)).get("/api/escrow/events" + query).status == 400


def test_users_without_the_tag_monitoring_hear_nothing(tmp_path: Path) -> None:
    assert FileSite(journal_with(tmp_path, 1)).get("/api/escrow/events", "u").status == 401
