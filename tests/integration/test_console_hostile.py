"""The console in a real Chromium, with markup and scripts in every text that clients and operators can bring: names of
queues, exchanges, users, virtual hosts, links, containers and policies, headers, bodies, reasons, xids, verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from escrowmq import client
from escrowmq.admin.socket.client import ask
from escrowmq.amqp10 import Message, exchange
from escrowmq.amqp10 import connect as one_point_zero
from escrowmq.amqp10 import queue as node
from escrowmq.console.pages import MENU
from tests.broker import wait_until
from tests.integration import test_console, test_server_half
from tests.integration.test_console import LISTS, Visitor
from tests.integration.test_server_http import HttpBroker, started
from tests.unit.evidence.test_audits import write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

EVIL = "'\"><x-evil onclick=alert(1)></x-evil><img src=x onerror=alert(2)>"
"""Markup that ends an attribute and a tag, as short as an xid has to be."""
SCRIPT = EVIL + "<script>alert(3)</script></script><!-- javascript:alert(4) {{ 7 * 7 }}"
INJECTED = """() => [...document.querySelectorAll("x-evil, img, iframe, script:not([src]), [href^='javascript:']")]
    .concat([...document.querySelectorAll("*")].filter(each => [...each.attributes].some(at => /^on/.test(at.name))))
    .map(each => each.outerHTML.slice(0, 200))"""
"""What no page of the console has by itself."""
MOST_PAGES = 150
DOWNLOAD = "definitions/file"

browser = test_console.browser
pytestmark = test_console.pytestmark


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    folder = tmp_path_factory.mktemp("hostile")
    audits = folder / "audits"
    audits.mkdir()
    for run in (1, 2):
        write(audits, run, violations=3, queue=SCRIPT)
    config = folder / "broker.toml"
    config.write_text('[http]\naudits = "audits"\n')
    test_server_half.stored(folder / "data", SCRIPT)
    with started(folder, "--config", str(config)) as found, ExitStack() as clients:
        prepare(found, clients)
        yield found


def prepare(site: HttpBroker, clients: ExitStack) -> None:
    def operate(operation: str, **arguments: object) -> None:
        ask(site.broker.data_dir, operation, **arguments)

    operate("vhost.add", name=SCRIPT)
    operate("user.add", name="guest", password="guest", tags=["administrator"])
    operate("permission.set", user="guest", vhost="/", configure=".*", write=".*", read=".*")
    operate("user.add", name=SCRIPT, password="password", tags=[SCRIPT, "monitoring"])
    operate("permission.set", user=SCRIPT, vhost="/", configure=".*", write=".*", read=".*")
    operate("permission.set", user="guest", vhost=SCRIPT, configure=".*", write=".*", read=".*")
    for operation in ("policy.set", "operator_policy.set"):
        given = {"name": SCRIPT, "pattern": "<x-evil>", "definition": {"max-length": 1000}, "priority": 1}
        operate(operation, vhost="/", **given)
    operate("exchange.declare", vhost="/", name=SCRIPT, type="topic", arguments={"note": SCRIPT})
    operate("queue.declare", vhost=SCRIPT, name=SCRIPT, arguments={"note": SCRIPT})
    properties = client.Properties(
        delivery_mode=2,
        message_id=SCRIPT,
        correlation_id=SCRIPT,
        app_id=SCRIPT,
        content_type=SCRIPT,
        headers={SCRIPT: EVIL},
    )
    parameters = {"client_properties": {"product": SCRIPT, "connection_name": SCRIPT, "version": SCRIPT}}
    connection = clients.enter_context(client.connect(site.broker.url, **parameters))
    channel = connection.channel()
    channel.queue_declare(SCRIPT, durable=True, arguments={"x-dead-letter-exchange": SCRIPT})
    channel.queue_bind(SCRIPT, SCRIPT, SCRIPT)
    for _ in range(3):
        channel.basic_publish("", SCRIPT, SCRIPT.encode(), properties)
    wait_until(lambda: channel.message_count(SCRIPT) == 3)
    for number in range(2):
        with client.connect(site.broker.url) as other:
            own = other.channel()
            method, _, _ = own.basic_get(SCRIPT)
            assert method is not None
            other.tpc_begin(other.xid(1, EVIL[:64], f"{number}{EVIL}"[:64]))
            own.basic_publish("", SCRIPT, SCRIPT.encode(), properties)
            own.basic_ack(method.delivery_tag)
            other.tpc_prepare()
    (first, _) = ask(site.broker.data_dir, "tx.list")
    operate("tx.rollback", xid=first["xid"], why=SCRIPT)
    channel.basic_consume(SCRIPT, lambda *_: None, consumer_tag=SCRIPT)
    receiving = clients.enter_context(one_point_zero(site.broker.url, container_id=EVIL))
    subscription = receiving.subscribe(exchange(SCRIPT), EVIL)
    channel.basic_publish(SCRIPT, SCRIPT, SCRIPT.encode(), properties)
    assert subscription.receive() is not None
    receiving.sender(node(SCRIPT)).send(Message(SCRIPT))


def dismissed(dialogs: list[str], dialog: Dialog) -> None:
    dialogs.append(dialog.message)
    dialog.dismiss()


def opened(page: Page, address: str, dialogs: list[str]) -> list[str]:
    """Open a page, and return the pages of the console to which it leads."""
    page.goto(address)
    assert page.evaluate(INJECTED) == [], address
    assert dialogs == [], address
    assert "49" not in page.title()
    found: list[str] = page.evaluate("() => [...document.querySelectorAll('a[href]')].map(each => each.href)")
    return [each.partition("#")[0] for each in found]


@pytest.mark.rule("SEC-1")
def test_no_page_takes_texts_for_markup(browser: Browser, site: HttpBroker) -> None:
    with Visitor(browser, site) as page:
        dialogs: list[str] = []
        page.on("dialog", partial(dismissed, dialogs))
        base, evil = f"http://127.0.0.1:{site.port}/console/", quote(SCRIPT, safe="")
        queues = [f"queues/{vhost}/{evil}?peek=1" for vhost in ("%2F", evil)]
        queries = [
            f"{name}?name={evil}&sort={evil}&list={evil}&what={evil}&kind={evil}" for name in ("queues", "journal")
        ]
        texts = [
            f"messages?id={evil}",
            f"messages?correlation_id={evil}",
            f"messages?queue={evil}&position=0&vhost=%2F",
        ]
        others = [
            *LISTS,
            *queues,
            *queries,
            *texts,
            evil,
            f"topics/%2F/{evil}",
            f"connections/{evil}",
            f"login?then={evil}",
        ]
        paths = [path for path, _ in MENU.values()]
        waiting = dict.fromkeys(base + path for path in [*paths, *others])
        seen: set[str] = set()
        paths_seen: set[str] = set()
        while waiting and len(seen) < MOST_PAGES:
            address = next(iter(waiting))
            del waiting[address]
            seen.add(address)
            for found in opened(page, address, dialogs):
                path = found.partition("?")[0]
                if found.startswith(base) and path not in paths_seen and not path.endswith(DOWNLOAD):
                    paths_seen.add(path)
                    waiting[found] = None
        shown = {
            name
            for name in ("transactions/", "journal/", "connections/", "half-messages/", "queues/")
            for each in seen
            if base + name in each
        }
        assert len(shown) == 5, seen


@pytest.mark.rule("SEC-1")
def test_texts_in_forms_and_notices_are_only_texts(browser: Browser, site: HttpBroker) -> None:
    with Visitor(browser, site) as page:
        dialogs: list[str] = []
        page.on("dialog", partial(dismissed, dialogs))
        base, evil = f"http://127.0.0.1:{site.port}/console/", quote(SCRIPT, safe="")
        for path, action, fields in (
            (f"queues/%2F/{evil}", "queue-purge", {"typed": SCRIPT}),
            ("transactions", "", {}),
            ("users", "user-add", {"name": EVIL, "password": "a long password", "tags": EVIL.replace(" ", "")}),
            ("policies", "policy-set", {"name": EVIL, "pattern": "<x-evil>", "definition": '{"max-length": 5}'}),
        ):
            opened(page, base + path, dialogs)
            if action:
                test_console.act(page, action, **fields)
                assert page.evaluate(INJECTED) == []
        page.goto(base + "users")
        assert page.locator("td, th", has_text=EVIL).count() >= 1, "it is shown as it is"
        assert dialogs == []
