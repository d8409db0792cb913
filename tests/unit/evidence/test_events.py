"""Events are sent as a stream that ends in time, is never silent for long, and is for those who may see the journal."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escrowmq.admin.http.logins import Operator
from escrowmq.core.access.access import Access
from escrowmq.core.access.grant import Grant
from escrowmq.evidence import events, feed
from escrowmq.evidence.feed import EVERYTHING, Feed, FeedPlace
from escrowmq.evidence.routes import stream_seconds
from tests.unit.evidence.sites import FileSite
from tests.unit.evidence.test_feed import Ends, end_of
from tests.unit.evidence.test_log import damaged, journal_with

EVENT = re.compile(r"(?:id: ([0-9a-f:]+)\n)?event: (\w+)\ndata: (.*)\n\n")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PERIOD", 0.0)


def sent(folder: Path, ask: Any, seconds: float = events.LONGEST) -> str:
    """Return the whole stream of what happens after the beginning of the log."""

    async def allowed() -> bool:
        return True

    async def collect() -> bytes:
        listening = Feed(folder, ask, FeedPlace(0), EVERYTHING)
        return b"".join([part async for part in events.stream(listening, allowed, seconds)])

    return asyncio.run(collect()).decode()


def test_an_event_has_its_identity_its_name_and_its_fields(tmp_path: Path) -> None:
    folder, broker = journal_with(tmp_path, 1), Ends()
    broker.ends = [end_of(folder)] * 2
    ((ident, name, data),) = EVENT.findall(sent(folder, broker))
    fields = json.loads(data)
    assert (name, fields["name"], ident) == ("QUEUE_DECLARED", "q0", f"{fields['lsn']}:{broker.live.start}:0")
    assert fields["time_us"] > 0


def test_a_stream_begins_after_the_first_look_so_that_everything_is_told_from_there_on(tmp_path: Path) -> None:
    broker = Ends(0, 0)

    async def allowed() -> bool:
        return True

    async def begin() -> bytes:
        return await anext(events.stream(Feed(journal_with(tmp_path, 1), broker, None, EVERYTHING), allowed))

    assert asyncio.run(begin()) == b"retry: 2000\n\n"
    assert broker.ends == [0]


def test_damage_is_the_last_event(tmp_path: Path) -> None:
    folder = damaged(journal_with(tmp_path, 10))
    assert EVENT.findall(sent(folder, Ends(*[end_of(folder)] * 9)))[-1][1] == "damage"


def test_silence_is_broken_by_comments_and_a_stream_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 0.0)
    parts = sent(journal_with(tmp_path, 1), Ends(*[0] * 1_000_000), 0.05).split("\n\n")
    assert set(parts) == {"retry: 2000", ": nothing new", ""}


def test_a_stream_does_not_outlive_the_token_that_opened_it() -> None:
    soon, late = ((time.time() + more) * 1000 for more in (20, 20_000))
    assert stream_seconds(Operator("u", ())) == events.LONGEST
    assert 10 < stream_seconds(Operator("u", (), Grant("u", (), int(soon)))) <= 20
    assert stream_seconds(Operator("u", (), Grant("u", (), int(late)))) == events.LONGEST
    assert stream_seconds(Operator("u", (), Grant("u", (), 1))) == 0


@pytest.mark.parametrize("query", ["?kind=nonsense", "?from=x"])
def test_a_query_that_makes_no_sense_is_refused(tmp_path: Path, query: str) -> None:
    assert FileSite(journal_with(tmp_path, 1)).get("/api/escrow/events" + query).status == 400


def test_users_without_the_tag_monitoring_hear_nothing(tmp_path: Path) -> None:
    assert FileSite(journal_with(tmp_path, 1)).get("/api/escrow/events", "u").status == 401


LOSSES: dict[str, Callable[[Access], object]] = {
    "the tag": lambda access: access.set_tags("m", ("management",)),
    "all tags": lambda access: access.set_tags("m", ()),
    "the user": lambda access: access.remove_user("m"),
}


@pytest.mark.rule("SEC-4")
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_listener_that_loses_its_rights_hears_no_more(
    tmp_path: Path, loss: Callable[[Access], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CHECK", 0.0)
    monkeypatch.setattr(events, "LONGEST", 20.0)
    site = FileSite(journal_with(tmp_path, 1))
    asked, looks = site.broker.ask, []

    async def ask(command: str, **arguments: Any) -> Any:
        if command == "event.list":
            looks.append(command)
            if len(looks) == 3:
                loss(site.server.broker.access)
        return await asked(command, **arguments)

    monkeypatch.setattr(site.broker, "ask", ask)
    answer = site.get("/api/escrow/events", "m")
    assert (answer.status, len(looks)) == (200, 3)
