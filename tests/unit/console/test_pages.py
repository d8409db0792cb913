"""Each page shows the state of the broker, whatever is in it."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import closing
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest

from escrowmq.admin.contents import first_entries
from escrowmq.console.pages import MENU, PAGES
from escrowmq.core.branches.branch import State
from escrowmq.evidence import log
from escrowmq.history.events import IndexedBranch, MessageEvent
from escrowmq.history.index import FOLDER, MessageIndex
from tests.unit.admin.standings import standing
from tests.unit.admin.test_half import Bench as HalfBench
from tests.unit.console.sites import Browser, notices
from tests.unit.evidence.sites import index, no_indexer
from tests.unit.evidence.test_audits import write
from tests.unit.evidence.test_log import damaged, journal_with
from tests.unit.history.test_following import written
from tests.unit.inspection.journals import small_journal
from tests.unit.wire.amqp091.clients import pair
from tests.unit.wire.amqp091.test_dtx_methods import prepared

__all__ = ("no_indexer",)
EVIL = "<img src=x onerror=alert(1)>"


class InDoubt(Browser):
    """A browser at a broker with two prepared branches, each of which brings a message to `q`."""

    def __init__(self, user: str = "guest") -> None:
        server, client = pair()
        self.client = client
        self.xids = [str(xid) for xid in prepared(server, client, 2)]
        super().__init__(server, user)
        self.pages = [f"/console/transactions/{quote(xid, safe='')}" for xid in self.xids]

    def states(self) -> list[State]:
        return [branch.state for branch in self.server.broker.branches.by_xid.values()]


@pytest.mark.parametrize("path", [path for path, _ in MENU.values() if not path.startswith("journal")])
@pytest.mark.parametrize("user", ["guest", "m"])
def test_every_page_of_the_menu_opens(path: str, user: str) -> None:
    answer = InDoubt(user).open(f"/console/{path}")
    refused = PAGES[path].administrators and user != "guest"
    assert answer.status == (403 if refused else 200), answer.body
    assert refused or b'aria-current="page"' in answer.body


def test_branches_in_doubt_are_listed_and_one_is_shown_with_its_messages_and_siblings() -> None:
    browser = InDoubt()
    listed = browser.text("/console/transactions")
    assert all(quote(xid, safe="") in listed for xid in browser.xids)
    shown = browser.text(browser.pages[0])
    assert "in doubt (prepared)" in shown
    assert "Messages that it brings" in shown


def test_messages_are_for_administrators() -> None:
    browser = InDoubt("m")
    shown = browser.text(browser.pages[0])
    assert "Messages that it brings" not in shown
    assert "/console/actions/branch-commit" not in shown


def test_a_branch_is_committed_with_a_reason_and_its_name_typed_again() -> None:
    browser = InDoubt()
    name = browser.xids[0]
    refused = browser.fill(browser.pages[0], "branch-commit", typed=name, why="")
    assert "reason" in notices(refused)[0][1]
    refused = browser.fill(browser.pages[0], "branch-commit", typed="another", why="it is gone")
    assert notices(refused)[0][0] == "failed"
    assert browser.states() == [State.PREPARED, State.PREPARED]
    done = browser.fill(browser.pages[0], "branch-commit", typed=name, why="it is gone")
    assert notices(done) == [("done", f"Branch {name} was committed.")]
    assert browser.states() == [State.HEURISTIC_COMMITTED, State.PREPARED]
    assert notices(browser.open(browser.pages[0])) == []


def test_messages_are_published_moved_and_purged() -> None:
    browser = InDoubt()
    browser.client.declare(1, "other")
    page = "/console/queues/%2F/q"
    properties = '{"delivery_mode": 2, "message_id": "new"}'
    assert notices(browser.fill(page, "message-publish", payload="body", properties=properties))[0][0] == "done"
    assert "new" in browser.text(page + "?peek=1")
    done = browser.fill(page, "queue-move", destination="other", count="10")
    assert notices(done) == [("done", "Moved to other: 1 message.")]
    assert notices(browser.fill(page, "queue-move", destination="none", count="10"))[0][0] == "failed"
    other = browser.server.broker.directory.vhost("/").queue("other")
    assert other.ready == 1
    assert notices(browser.fill("/console/queues/%2F/other", "queue-purge", typed="q"))[0][0] == "failed"
    browser.fill("/console/queues/%2F/other", "queue-purge", typed="other")
    assert other.ready == 0
    browser.fill("/console/queues/%2F/other", "queue-delete", typed="other")
    assert other.deleted


def test_a_message_is_copied_as_json_and_moved_from_its_page(tmp_path: Path) -> None:
    browser = InDoubt()
    browser.client.declare(1, "other")
    browser.client.publish(1, "q", b"first", EVIL.encode(), b"third")
    queue = browser.server.broker.directory.vhost("/").queue("q")
    position = next(entry.position for entry in first_entries(queue, 3) if EVIL.encode() in entry.content)
    (tmp_path / FOLDER).mkdir()
    with closing(MessageIndex(tmp_path)) as index:
        index.begin(b"journal")
        index.add_queue(queue.ident, "/", "q", 10)
        index.add([MessageEvent(queue.ident, position, 1, "published")], 20, 9)
        index.commit(30, 30)
    browser.console.files.data_dir = tmp_path
    page = f"/console/messages?queue=q&position={position}"
    text = browser.text(page)
    document = json.loads(unescape(re.findall(r'<pre tabindex="0" id="json1">(.*?)</pre>', text, re.DOTALL)[0]))
    assert (document["position"], document["life"][0]["what"]) == (position, "published")
    assert document["message"]["body"] == EVIL
    assert EVIL not in text
    done = browser.fill(page, "message-redrive", destination="other")
    assert notices(done) == [("done", "The message was moved to other.")]
    assert [entry.content.endswith(b"third") for entry in first_entries(queue, 5)][-1]
    assert (queue.ready, browser.server.broker.directory.vhost("/").queue("other").ready) == (2, 1)
    assert "message-redrive" not in browser.text(page)  # it is not there any more


def test_an_unknown_branch_is_not_found() -> None:
    answer = Browser().open("/console/transactions/1%3Aab%3Acd")
    assert (answer.status, b"no branch" in answer.body) == (404, True)


def test_half_messages_are_listed_and_shown() -> None:
    bench = HalfBench()
    browser = Browser(bench.server)
    listed = browser.text("/console/transactions?list=half")
    assert "/console/half-messages/%2F/" in listed
    path, *_ = {part.partition('"')[0] for part in listed.split('href="')[1:] if "half-messages" in part}
    assert "Decide" in browser.text(path)


def test_names_and_bodies_cannot_bring_in_markup() -> None:
    browser = InDoubt()
    browser.client.declare(1, EVIL)
    browser.client.publish(1, EVIL, EVIL.encode())
    for path in ("queues", "queues/%2F/" + quote(EVIL, safe=""), "queues/%2F/" + quote(EVIL, safe="") + "?peek=1"):
        text = browser.text("/console/" + path)
        assert EVIL not in text
        assert "&lt;img" in text


def test_arguments_that_utf8_and_json_have_not_are_shown() -> None:
    browser = InDoubt()
    browser.client.declare(1, "odd", arguments={"x-odd": float("nan")})
    assert "NaN" in browser.text("/console/queues/%2F/odd")
    browser.server.broker.directory.vhost("/").queue("odd").arguments["x-odder"] = "\ud800"
    assert "x-odder" in browser.text("/console/queues/%2F/odd")


def test_a_queue_that_is_named_like_a_branch_is_none(tmp_path: Path) -> None:
    with closing(MessageIndex(tmp_path)) as index:
        index.begin(b"journal")
        index.add_queue(1, "/", "q", 10)
        details = (
            "from branch 99999999999999999999: expired",
            "by branch 7, which is in doubt",
            "by branch " + "9" * 30,
        )
        index.add([IndexedBranch(7, "1:aa:bb"), *(MessageEvent(1, 0, 1, "x", detail) for detail in details)], 20, 9)
        index.commit(30, 30)
    text = Browser(folder=tmp_path).text("/console/messages?queue=q&position=0")
    assert text.count("Branch 7 is") == text.count(" is <a href") == 1
    assert "from branch 99999999999999999999: expired" in text


def test_looking_at_messages_takes_none() -> None:
    browser = InDoubt()
    browser.client.publish(1, "q", b"first", b"second")
    text = browser.text("/console/queues/%2F/q?peek=1")
    assert text.index("first") < text.index("second")
    assert browser.server.broker.directory.vhost("/").queue("q").ready == 2


@pytest.mark.parametrize("path", ["queues/%2F/none", "queues/..%2F..%2Fetc/passwd", "queues/%2F/%2E%2E"])
def test_an_unknown_queue_says_so(path: str) -> None:
    answer = Browser().open("/console/" + path)
    assert answer.status in (400, 200)
    assert b"no queue" in answer.body or b"no such vhost" in answer.body


def test_lists_are_filtered_sorted_and_paged() -> None:
    browser = InDoubt()
    for number in range(60):
        browser.client.declare(1, f"list{number:02}")
    assert "list59" not in browser.text("/console/queues?name=list")
    assert "list59" in browser.text("/console/queues?name=list&page=2")
    text = browser.text("/console/queues?name=list&sort=name&sort_reverse=true")
    assert text.index("list59") < text.index("list58")
    assert browser.open("/console/queues?page=x").status == 400


def test_the_journal_is_a_timeline_whose_records_open(tmp_path: Path) -> None:
    lsns = small_journal(tmp_path)
    browser = Browser(folder=tmp_path)
    newest = browser.text("/console/journal")
    assert all(f"/console/journal/{lsn:#x}" in newest for lsn in lsns)
    assert newest.index(f"{lsns[-1]:#x}") < newest.index(f"{lsns[0]:#x}")
    assert f"/console/journal/{lsns[0]:#x}" not in browser.text(f"/console/journal?from={lsns[1]:#x}")
    assert "user set" not in browser.text("/console/journal?kinds=messages")
    assert "publish" in browser.text(f"/console/journal/{lsns[1]:#x}")
    assert browser.open(f"/console/journal/{lsns[1] + 1}").status == 404
    assert browser.open("/console/journal/x").status == 400


def test_the_timeline_shows_frames_and_what_is_in_them(tmp_path: Path) -> None:
    lsns = small_journal(tmp_path)
    browser = Browser(folder=tmp_path)
    newest = browser.text("/console/journal/timeline")
    assert '<span class="tag">frame</span>' in newest
    assert f"{lsns[-1]:#x}" not in browser.text("/console/journal/timeline?what=starts")
    assert "Nothing." in browser.text("/console/journal/timeline?from=0&what=starts")
    assert browser.open("/console/journal/timeline?from=x").status == 400


def test_damage_of_the_journal_is_shown(tmp_path: Path) -> None:
    browser = Browser(folder=damaged(journal_with(tmp_path, 10)))
    (part,) = log.after(tmp_path, 0).damage
    for query in ("", "?from=0"):
        text = browser.text("/console/journal" + query)
        assert "damaged in 1 place " in text
        assert f"{part.lsn:#x}" in text
    answer = browser.open(f"/console/journal/{part.lsn:#x}")
    assert (answer.status, b"the log is damaged there" in answer.body) == (404, True)


def test_lives_of_messages_are_for_those_who_may_read_the_queue(tmp_path: Path) -> None:
    written(tmp_path, 2).journal.close()
    index(tmp_path)
    browser = Browser(user="m", folder=tmp_path)
    assert "in a queue that you may read" in browser.text("/console/messages?id=m1")
    browser.server.broker.access.set_permission("m", "/", "", "", "^q$")
    assert "accepted" in browser.text("/console/messages?id=m1")


def test_a_search_refreshes_its_results_until_the_index_has_the_journal(tmp_path: Path) -> None:
    browser = Browser(folder=tmp_path)
    text = browser.text("/console/messages?id=m1")
    assert "The index has no such message yet" in text
    assert """hx-trigger="every 1s" hx-vals='{"upto": "4096"}'""" in text
    written(tmp_path, 2).journal.close()
    index(tmp_path)
    text = browser.text("/console/messages?id=m1&upto=1")
    assert "accepted" in text
    assert "hx-get" not in text


def test_the_dead_letter_history_of_a_message_is_shown() -> None:
    browser = Browser()
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    place = {"vhost": "/", "exchange": "", "routing_key": "work", "payload": "body", "properties": {}}

    async def bury() -> None:
        for name, arguments in (("work", dead), ("dead", {})):
            await browser.broker.ask("queue.declare", vhost="/", name=name, durable=True, arguments=arguments)
        await browser.broker.ask("message.publish", **place)
        await browser.broker.ask("message.get", vhost="/", queue="work", count=1, disposition="reject")

    asyncio.run(bury())
    browser.server.end_turn()
    text = browser.text("/console/queues/%2F/dead?peek=1")
    assert "Dead-letter history (x-death)" in text
    assert '<th scope="row">work</th><td data-label="Reason">rejected</td>' in text


def test_a_column_of_texts_is_sorted_upwards_first_and_one_of_numbers_downwards() -> None:
    browser = InDoubt()
    text = browser.text("/console/queues?sort=ready&sort_reverse=true")
    assert '<a href="?sort=ready">Ready</a>' in text
    assert '<a href="?sort=name">Name</a>' in text
    assert '<a href="?sort=held&sort_reverse=true">Held</a>' in text
    assert '<a href="?sort=name&sort_reverse=true">Name</a>' in browser.text("/console/queues?sort=name")


def test_the_verdicts_of_audits_are_shown_with_links_to_messages(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2, violations=2, queue=EVIL)
    browser = Browser(user="m", audits=tmp_path)
    text = browser.text("/console/audits")
    assert "2 violations, in run 2" in text
    assert f"/console/messages?vhost=%2F&queue={quote(EVIL, safe='')}&position=7" in text
    assert EVIL not in text
    assert "/console/actions/audit-start" not in text  # it is for administrators
    assert "CLEAN" in browser.text("/console/audits?run=1")
    assert browser.open("/console/audits?run=3").status == 404
    assert browser.open("/console/audits?run=x").status == 400
    overview = browser.text("/console/")
    assert "Last audit" in overview
    assert "violations, " in overview
    assert browser.open("/console/trend").json["violations"] == [0, 2]


def test_without_a_folder_for_audits_the_page_says_which_setting_is_missing() -> None:
    browser = Browser()
    assert "set http.audits" in browser.text("/console/audits")
    assert "Last audit" not in browser.text("/console/")


def test_an_audit_that_cannot_be_started_is_refused_with_a_notice(tmp_path: Path) -> None:
    browser = Browser(audits=tmp_path)
    browser.console.files.audit.lack = lambda: "it needs Spark"
    token = browser.text("/console/users").partition('name="form_token" value="')[2].partition('"')[0]
    browser.send("/console/actions/audit-start", {"form_token": token, "back": "/console/audits"})
    assert notices(browser.open("/console/audits")) == [("failed", "it needs Spark")]


def test_the_page_of_replication_says_if_the_journal_is_alone() -> None:
    assert "This broker has its journal alone" in Browser().text("/console/replication")


def test_the_page_of_replication_shows_nodes_engine_and_take_overs() -> None:
    browser = Browser()
    browser.broker.process.standing = standing(silent=True)
    text = browser.text("/console/replication")
    for shown in (
        "Nothing is delivered, since the replicated log does not answer.",
        "2 of 3",
        "the stream s: max_age is 1, not 0",
        "leader, this node",
        "3.1 kB",
        "2017-07-14 02:40:00.000",
        "whose process had ended",
        "0.3 s",
    ):
        assert shown in text, shown
