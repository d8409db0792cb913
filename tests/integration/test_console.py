"""The console in a real Chromium: a branch in doubt is found after a kill and decided; each screen is accessible."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from escrowmq import client
from escrowmq.admin.socket.client import ask
from escrowmq.console.pages import MENU
from tests.broker import wait_until
from tests.integration.test_server_http import HttpBroker, started
from tests.interop.node_clients import NODE
from tests.unit.evidence.test_audits import write
from tests.unit.xid_names.test_narayana import NAME as OF_NARAYANA
from tests.unit.xid_names.test_narayana import XID as NARAYANA

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LISTS = (
    "queues/%2F/bills?peek=1",
    "queues/%2F/amq.delayed",
    "topics/%2F/shipments",
    "groups/%2F/billing",
    "journal/timeline",
    "transactions?list=half",
    "topics?list=groups",
    "connections?list=channels",
    "connections?list=consumers",
    "unsettled?list=links",
    "unsettled?list=holds",
    "messages?queue=bills&position=0",
)
"""Screens that the menu does not name."""
AXE = NODE / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium")
SECONDS = 60
BEYOND = """width => {
    document.querySelectorAll("main details").forEach(each => each.open = true);
    return [...document.querySelectorAll("main *")]
        .filter(each => !each.closest("pre, thead, .unseen") && each.getBoundingClientRect().right > width)
        .map(each => each.outerHTML.slice(0, 200));
}"""
"""What a window of a width does not show, also when everything is unfolded. The content of <pre> can be scrolled."""
EVIL = "<img src=x onerror=document.title='broken'>"

playwright: Any = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(CHROMIUM is None or not AXE.exists(), reason="needs Chromium, and npm ci in NODE")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as started_playwright:
        found = started_playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    folder = tmp_path_factory.mktemp("console")
    config = folder / "broker.toml"
    config.write_text('[http]\naudits = "audits"\nbackups = "backups"\n')
    with started(folder, "--config", str(config)) as found:
        prepare(found)
        yield found


def prepare(site: HttpBroker) -> None:
    """Leave a branch in doubt, which takes an order and brings a bill."""
    with client.connect(site.broker.url) as connection:
        channel = connection.channel()
        for queue in ("orders", "bills", EVIL):
            channel.queue_declare(queue, durable=True)
        order = client.Properties(delivery_mode=2, message_id="order-7", headers={"note": EVIL})
        channel.basic_publish("", "orders", b"seven pears", order)
        wait_until(lambda: channel.message_count("orders") == 1)
        method, _, _ = channel.basic_get("orders")
        assert method is not None
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
        hour = client.Properties(delivery_mode=2, message_id="late", headers={"x-delay": 3_600_000, "note": EVIL})
        channel.basic_publish("later", "orders", EVIL.encode(), hour)
        connection.tpc_begin(connection.xid(1, "purchase 7", "broker"))
        channel.basic_publish("", "bills", EVIL.encode(), client.Properties(delivery_mode=2, message_id="bill-7"))
        channel.basic_ack(method.delivery_tag)
        connection.tpc_prepare()
    ask(site.broker.data_dir, "topic.create", vhost="/", name="shipments", partitions=2, message_type="normal")
    ask(site.broker.data_dir, "group.create", vhost="/", name="billing")


class Visitor:
    """An operator at a browser, who has logged in, unless the page has no login."""

    def __init__(self, browser: Browser, site: HttpBroker, *, logs_in: bool = True, **options: Any) -> None:
        self.base = f"http://127.0.0.1:{site.port}"
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(SECONDS * 1000)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda line: self.faults.append(line.text) if "Security Policy" in line.text else None)
        self.page.goto(self.base)
        if logs_in:
            self.log_in()

    def log_in(self) -> None:
        self.page.fill("[name=user]", "guest")
        self.page.fill("[name=password]", "guest")
        self.page.click("button")
        self.page.wait_for_selector("nav")

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.faults == []


def violations(page: Page) -> list[Any]:
    """Return what axe-core finds on a page. It is brought in by the debugger, which no policy of a page forbids."""
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": AXE.read_text()})
    found: list[Any] = page.evaluate(
        "axe.run().then(found => found.violations.map(each => [each.id, each.nodes.map(node => node.html)]))"
    )
    return found


@pytest.fixture
def client_address(site: HttpBroker) -> Iterator[str]:
    """A client that leaves a delivery unsettled; its address."""
    with client.connect(site.broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("watched", durable=True)
        channel.basic_publish("", "watched", EVIL.encode())
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume("watched", lambda *_: None)
        wait_until(lambda: any(row["messages_unacknowledged"] for row in json.loads(site.get("/api/channels")[1])))
        (row,) = json.loads(site.get("/api/connections")[1])
        yield row["name"]


def life(page: Page, ident: str) -> list[tuple[str, str]]:
    """Search for a message until the index has the whole journal, and return what happened to it, with the details."""
    page.click("nav >> text=Messages")

    def searched() -> bool:
        page.fill("[name=id]", ident)
        page.locator("form:has([name=id]) button").click()
        return page.locator(".life li").count() > 0 and page.locator("p[role=status]").count() == 0

    wait_until(searched)
    lines = page.locator(".life li").all()
    return [(line.locator("strong").inner_text(), line.inner_text()) for line in lines]


def test_a_branch_in_doubt_is_found_after_a_kill_and_decided(browser: Browser, site: HttpBroker) -> None:
    site.broker.kill()
    site.broker.start()
    wait_until(site.answers)
    with Visitor(browser, site) as page:
        assert "1" in page.locator(".tile.doubt strong").inner_text()
        page.click("nav >> text=Transactions")
        page.click("text=purchase 7 · broker")
        page.locator(".message", has_text="seven pears").wait_for()
        assert page.locator(".message", has_text="bill-7").locator("pre.body").inner_text() == EVIL
        xid = page.locator("dt:has-text('Xid') + dd").inner_text()
        page.click("summary:has-text('Commit')")
        form = page.locator("form[action$=branch-commit]")
        form.locator("[name=why]").fill("its manager is gone")
        form.locator("[name=typed]").fill("something else")
        form.locator("button").click()
        page.locator(".notice.failed").wait_for()
        page.click("summary:has-text('Commit')")
        form.locator("[name=why]").fill("its manager is gone")
        form.locator("[name=typed]").fill(xid)
        form.locator("button").click()
        assert "was committed" in page.locator(".notice.done").inner_text()
        moments = life(page, "order-7")
        assert [words for words, _ in moments] == ["published", "locked", "accepted"]
        assert "by an operator, branch 1 committed" in moments[2][1]
        assert page.locator("code", has_text=xid).count() == 1
        page.locator(".life a").nth(2).click()
        page.locator(".facts", has_text="heuristic").wait_for()
        assert [words for words, _ in life(page, "bill-7")] == ["published"]
    with client.connect(site.broker.url) as connection:
        channel = connection.channel()
        assert (channel.message_count("orders"), channel.message_count("bills")) == (0, 1)
    assert re.search("tx.commit .*by='guest' why='its manager is gone'", site.broker.log())


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark", "viewport": {"width": 360, "height": 740}}])
def test_every_screen_is_accessible_in_light_and_dark(
    browser: Browser, site: HttpBroker, client_address: str, options: Any
) -> None:
    with Visitor(browser, site, **options) as page:
        for path in [*(path for path, _ in MENU.values()), *LISTS, f"connections/{quote(client_address, safe='')}"]:
            page.goto(page.url.partition("/console/")[0] + "/console/" + path)
            page.locator("main h1").wait_for()
            assert violations(page) == [], path
            width = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert width, f"{path} is wider than the window"
            if "viewport" in options:
                assert page.evaluate(BEYOND, 360) == [], f"{path} shows things beyond the edge of a phone"
            assert "broken" not in page.title()


def test_a_search_goes_on_until_the_index_has_the_journal(browser: Browser, site: HttpBroker) -> None:
    with client.connect(site.broker.url) as connection:
        channel = connection.channel()
        channel.basic_publish("", "bills", b"late", client.Properties(delivery_mode=2, message_id="late-7"))
        wait_until(lambda: channel.message_count("bills") > 0)
    with Visitor(browser, site) as page:
        page.click("nav >> text=Messages")
        page.fill("[name=id]", "late-7")
        page.locator("form:has([name=id]) button").click()
        page.locator(".life li").wait_for()
        page.locator("p[role=status]").wait_for(state="detached")
        page.wait_for_function("document.querySelector('#found[hx-get]') === null")


def test_queues_are_sorted_by_their_headers(browser: Browser, site: HttpBroker) -> None:
    with Visitor(browser, site) as page:
        page.goto(f"http://127.0.0.1:{site.port}/console/queues")
        seen = []
        for _ in range(2):
            page.click("thead a:has-text('Name')")
            page.locator("th[aria-sort] a:has-text('Name')").wait_for()
            seen.append(page.locator("tbody th[scope=row] a").all_inner_texts())
        assert seen[0] == sorted(seen[0])
        assert len(seen[0]) > 1
        page.locator("th[aria-sort=descending]").wait_for()
        assert page.locator("tbody th[scope=row] a").all_inner_texts() == sorted(seen[0], reverse=True)


def test_users_fit_on_a_phone(browser: Browser, site: HttpBroker) -> None:
    with Visitor(browser, site, viewport={"width": 360, "height": 740}) as page:
        page.goto(f"http://127.0.0.1:{site.port}/console/users")
        page.locator(".stacked td[data-label=Permissions]").first.wait_for()
        assert page.evaluate(BEYOND, 360) == []


def test_long_xids_and_names_leave_the_other_columns_on_a_phone(browser: Browser, site: HttpBroker) -> None:
    """One xid is of Narayana; the parts of the other are as long as possible, and no text."""
    name, gtrid, bqual = "reports." + "x" * 200, bytes([0, 255]) * 32, bytes(range(64))
    topic, ident = "t" * 100, "m" * 200
    properties = client.Properties(delivery_mode=2, message_id=ident, headers={"h" * 100: "v" * 300})
    for given in (NARAYANA, (131077, gtrid, bqual), None):
        with client.connect(site.broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare(name, durable=True)
            if given is not None:
                connection.tpc_begin(connection.xid(*given))
            channel.basic_publish("", name, b"report" * 50, properties)
            if given is not None:
                connection.tpc_prepare()
    ask(site.broker.data_dir, "topic.create", vhost="/", name=topic, partitions=2, message_type="normal")
    ask(site.broker.data_dir, "group.create", vhost="/", name=topic)
    definition = {"dead-letter-exchange": "d" * 100}
    policy = {"pattern": "^reports" + "x" * 150, "definition": definition, "priority": 1, "apply_to": "queues"}
    ask(site.broker.data_dir, "policy.set", vhost="/", name="p" * 100, **policy)
    xid = f"131077:{gtrid.hex()}:{bqual.hex()}"
    details = (
        *(f"transactions/{each}" for each in (xid, quote(OF_NARAYANA, safe=""))),
        *(f"queues/%2F/{name}?peek=1", f"topics/%2F/{topic}", f"groups/%2F/{topic}"),
    )
    for scheme in ("light", "dark"):
        with Visitor(browser, site, viewport={"width": 375, "height": 812}, color_scheme=scheme) as page:
            for path in (*(path for path, _ in MENU.values()), *LISTS, *details):
                page.goto(f"http://127.0.0.1:{site.port}/console/{path}")
                assert page.evaluate(BEYOND, 375) == [], path
            life(page, ident)
            assert page.evaluate(BEYOND, 375) == [], "the life of a message"
            page.goto(f"http://127.0.0.1:{site.port}/console/transactions")
            for shown in (xid, OF_NARAYANA):
                row = page.locator("tbody tr", has_text=shown)
                playwright.expect(row.locator("[data-label=State]")).to_be_visible()
                playwright.expect(row.locator("[data-label=Owner]")).to_contain_text("guest")
    with Visitor(browser, site) as page:
        page.goto(f"http://127.0.0.1:{site.port}/console/transactions/{quote(OF_NARAYANA, safe='')}")
        page.click("summary:has-text('Roll back')")
        form = page.locator("form[action$=branch-rollback]")
        form.locator("[name=why]").fill("its manager is gone")
        form.locator("[name=typed]").fill(OF_NARAYANA)
        form.locator("button").click()
        page.locator(".notice.done", has_text=OF_NARAYANA).wait_for()
    ask(site.broker.data_dir, "tx.rollback", xid=xid, why="the test is over", by="guest")
    ask(site.broker.data_dir, "policy.clear", vhost="/", name="p" * 100)


def test_a_file_of_definitions_is_chosen_and_imported(browser: Browser, site: HttpBroker, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text('{"queues": [{"vhost": "/", "name": "imported"}]}')
    with Visitor(browser, site) as page:
        page.goto(f"http://127.0.0.1:{site.port}/console/definitions")
        page.set_input_files("input[type=file]", file)
        playwright.expect(page.locator("textarea")).to_have_value(file.read_text())
        page.click("text=Import >> nth=-1")
        assert "imported: queues 1" in page.inner_text(".notice.done")
        with page.expect_download() as download:
            page.click("text=Download")
        assert '"imported"' in download.value.path().read_text()


def test_the_overview_refreshes_itself_and_draws(browser: Browser, site: HttpBroker) -> None:
    with Visitor(browser, site) as page:
        page.wait_for_selector(".plot canvas")
        before = page.locator("#live").element_handle()
        assert before is not None
        page.wait_for_function("element => !element.isConnected", arg=before)
        assert page.locator(".tile").count() == 7


def test_everything_can_be_reached_by_keyboard(browser: Browser, site: HttpBroker) -> None:
    with Visitor(browser, site) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        reached = set()
        for _ in range(len(MENU) + 3):  # and the brand, the log-out and the first action
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.textContent.trim()"))
        assert {title for _, title in MENU.values()} <= reached


def test_the_verdicts_of_audits_are_shown_and_one_audit_is_started(browser: Browser, site: HttpBroker) -> None:
    folder = site.broker.data_dir.parent / "audits"
    folder.mkdir()
    write(folder, 1)
    write(folder, 2, violations=1, queue=EVIL)
    with Visitor(browser, site) as page:
        assert "violations, " in page.locator(".tile", has_text="Last audit").inner_text()
        page.click("nav >> text=Audit")
        assert "1 violation, in run 2" in page.locator(".notice.failed").inner_text()
        page.wait_for_selector(".plot canvas")
        page.click("#found ~ * tbody a >> nth=0")
        assert page.locator("[name=queue]").input_value() == EVIL
        page.click("nav >> text=Audit")
        page.click("summary:has-text('Run now')")
        page.click("form[action$=audit-start] button")
        assert "was started" in page.locator(".notice.done").inner_text()
        page.wait_for_selector("text=The audit that guest started")
        assert page.locator("summary:has-text('Run now')").count() == 0
        assert violations(page) == []
    assert "audit started by='guest'" in site.broker.log()


def test_a_backup_is_started_and_its_outcome_is_shown(browser: Browser, site: HttpBroker) -> None:
    with Visitor(browser, site) as page:
        page.click("summary:has-text('Back up')")
        page.click("form[action$=backup-start] button")
        page.wait_for_selector("text=ended with exit status")
        assert "exit status 0" in page.locator("text=ended with exit status").inner_text()
        assert violations(page) == []


def start_audit(page: Page, site: HttpBroker) -> None:
    page.goto(f"http://127.0.0.1:{site.port}/console/audits")
    page.click("summary:has-text('Run now')")
    page.click("form[action$=audit-start] button")
    page.wait_for_selector("text=The audit that guest started")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_audit_that_is_started_here_is_followed_to_its_verdict(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit does not give way here: beside other tests, it would wait for minutes until a processor is idle."""
    patches = (
        "import os",
        "from escrowmq.pipeline import background",
        "os.nice = lambda more: 0",
        "background.give_way = lambda broker=None: False",
    )
    (tmp_path / "sitecustomize.py").write_text("\n".join(patches))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    config = tmp_path / "broker.toml"
    config.write_text('[http]\naudits = "audits"\n')
    with started(tmp_path, "--config", str(config)) as site:
        with client.connect(site.broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.basic_publish("", "orders", b"seven pears", client.Properties(delivery_mode=2))
            wait_until(lambda: channel.message_count("orders") == 1)
        with Visitor(browser, site) as page:
            start_audit(page, site)
            page.wait_for_selector("text=is running")
            page.wait_for_selector("text=ended with exit status 0", timeout=600_000)
            page.wait_for_selector(".notice.done:has-text('CLEAN: no rule was broken, in run 1')")
            assert page.locator("summary:has-text('Run now')").count() == 1
            page.click("nav >> text=Overview")
            assert "clean" in page.locator(".tile", has_text="Last audit").inner_text()


def test_without_spark_the_page_says_in_one_line_what_is_missing(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    config = tmp_path / "broker.toml"
    config.write_text('[http]\naudits = "audits"\n')
    with started(tmp_path, "--config", str(config)) as site, Visitor(browser, site) as page:
        page.click("nav >> text=Audit")
        lacking = page.locator(".note", has_text="An audit cannot be started here").inner_text()
        assert lacking.endswith("the audit needs Spark: pip install 'escrowmq[spark]'")
        assert page.locator("summary:has-text('Run now')").count() == 0


def act(page: Page, action: str, **fields: str) -> str:
    """Open a form on the page, fill it in, send it, and return the notice that follows."""
    form = page.locator(f"form[action$='/{action}']").first
    form.locator("xpath=..").locator("summary").click()
    for name, value in fields.items():
        form.locator(f"[name={name}]").fill(value)
    form.locator("button").click()
    notice = page.locator(".notice.done, .notice.failed").first
    notice.wait_for()
    assert "done" in (notice.get_attribute("class") or ""), notice.inner_text()
    return notice.inner_text()


def test_the_actions_of_the_screens_are_done(browser: Browser, site: HttpBroker, client_address: str) -> None:
    base = f"http://127.0.0.1:{site.port}/console/"
    with client.connect(site.broker.url) as connection, Visitor(browser, site) as page:
        channel = connection.channel()
        channel.queue_declare("acted", durable=True)
        channel.queue_declare("target", durable=True)

        def goto(path: str) -> None:
            page.goto(base + path)

        goto("queues/%2F/acted")
        assert "reached a queue" in act(page, "message-publish", payload=EVIL)
        assert "1 message" in act(page, "queue-move", destination="target", count="10")
        goto("queues/%2F/target?peek=1")
        assert page.locator("pre.body").inner_text() == EVIL
        assert "purged" in act(page, "queue-purge", typed="target")
        assert "deleted" in act(page, "queue-delete", typed="target")
        goto("")
        assert "snapshot" in act(page, "journal-snapshot")
        goto("journal/timeline?what=snapshots")
        assert page.locator("tbody .tag", has_text="snapshot").count() >= 1
        goto("policies")
        assert "was set" in act(page, "policy-set", name="short", pattern="acted", definition='{"max-length": 5}')
        goto("queues/%2F/acted")
        goto("policies")
        assert "removed" in act(page, "policy-clear", typed="short")
        goto("users")
        assert "was added" in act(page, "user-add", name="watcher", password="a long password", tags="monitoring")
        goto("topics/%2F/shipments")
        assert "reached a queue" in act(page, "message-publish", routing_key="red", payload="x")
        goto("groups/%2F/billing")
        assert "was set" in act(page, "group-reset", to="first", typed="billing")
        connection.tpc_begin(connection.xid(1, "purchase 8", "broker"))
        channel.basic_publish("", "acted", b"x", client.Properties(delivery_mode=2))
        connection.tpc_prepare()
        goto("transactions")
        page.click("text=purchase 8 · broker")
        xid = page.locator("dt:has-text('Xid') + dd").inner_text()
        assert "rolled back" in act(page, "branch-rollback", typed=xid, why="a test")
        assert "forgotten" in act(page, "branch-forget", typed=xid, why="a test")
        goto("unsettled")
        page.locator("tr", has_text=client_address).wait_for()
        goto(f"connections/{quote(client_address, safe='')}")
        assert "was closed" in act(page, "connection-close")
