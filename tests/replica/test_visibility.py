"""What operators see of replicated brokers: on the command line, over HTTP and in a browser, on leader and standby."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from escrowmq.cli.replica import replica
from tests.broker import wait_until
from tests.engines.nats_nodes import NatsNodes
from tests.integration.test_console import AXE, CHROMIUM, Visitor, browser, violations
from tests.integration.test_server_http import HttpBroker
from tests.ports import reserve_port
from tests.replicas import ReplicaBroker, serves

__all__ = ("browser",)
needs_browser = pytest.mark.skipif(CHROMIUM is None or not AXE.exists(), reason="needs Chromium, and npm ci in NODE")
LOOKS = pytest.mark.parametrize("options", [{}, {"color_scheme": "dark", "viewport": {"width": 360, "height": 740}}])
pytestmark = pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))


class Site(ReplicaBroker):
    """A node with HTTP."""

    def __init__(self, folder: Path, node: str, url: str) -> None:
        folder.mkdir()
        self.http_port = reserve_port(self)
        super().__init__(folder, node, url, "--http", f"127.0.0.1:{self.http_port}")
        self.environment["ESCROWMQ_HTTP_OPEN_METRICS"] = "true"
        self.http = HttpBroker(self, self.http_port)

    def status(self) -> list[str]:
        """Return the lines of the command."""
        done = CliRunner().invoke(replica, ["status", "--data-dir", str(self.data_dir)])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    def knows_engine(self) -> bool:
        """Return whether the engine has answered."""
        return any("NATS (reachable), 1 of 1" in line for line in self.status())

    def metrics(self) -> dict[str, float]:
        """Return the metrics of replication."""
        status, body = self.http.get("/metrics")
        assert status == 200, body
        lines = (line.split() for line in body.decode().splitlines() if line.startswith("escrowmq_replica_"))
        return {name.removeprefix("escrowmq_replica_"): float(value) for name, value in lines}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Site]]:
    """The leader, which took over from the standby, whose process was killed and started again."""
    folder = tmp_path_factory.mktemp("nodes")
    with NatsNodes(folder / "nats", 1) as engine:
        first, second = (Site(folder / name, name, engine.url("seen")) for name in ("n1", "n2"))
        try:
            first.begin()
            wait_until(lambda: serves(first), 60, "the first leader")
            second.begin()
            wait_until(lambda: len(first.standing().get("nodes", ())) == 2, 60, "the report of the standby")
            first.kill()
            wait_until(lambda: serves(second), 60, "another leader")
            first.begin()
            wait_until(lambda: len(second.standing().get("nodes", ())) == 2, 60, "the report of the standby")
            wait_until(lambda: first.http.answers() and second.http.answers(), 60, "both HTTP processes")
            yield second, first
        finally:
            for node in (first, second):
                node.kill()


def test_a_standby_prints_its_addresses_also_that_for_http(nodes: tuple[Site, Site]) -> None:
    _, standby = nodes
    urls = f"amqp://127.0.0.1:{standby.port}", f"http://127.0.0.1:{standby.http_port}"
    lines = {f"standby {url} data={standby.data_dir}" for url in urls}
    wait_until(lambda: lines <= set(standby.log().splitlines()), 60, "its lines")


def test_each_node_shows_leader_nodes_engine_and_take_overs(nodes: tuple[Site, Site]) -> None:
    leader, standby = nodes
    for node, own in ((leader, "node       n2 (leader)"), (standby, "node       n1 (standby)")):
        wait_until(node.knows_engine, 30, "the engine")
        lines = node.status()
        assert lines[0] == own
        assert lines[1].startswith("leader     n2 ")
        assert sum(line.startswith(("leader     n2", "standby    n1")) for line in lines) == 3
        (last,) = (line for line in lines if "epoch 2 by n2 from n1" in line)
        assert ", whose process had ended, after " in last
        assert any(line.startswith("settings   right, checked ") for line in lines)


def test_metrics_of_leader_and_standby_are_scraped(nodes: tuple[Site, Site]) -> None:
    leader, standby = (node.metrics() for node in nodes)
    assert (leader["leads"], standby["leads"]) == (1, 0)
    assert leader["epoch"] == standby["epoch"] == 2
    assert leader["engine_replicas"] == standby["engine_in_sync"] == 1
    assert standby["behind_seconds"] < 30
    assert leader["take_overs"] == standby["take_overs"] == 2


def test_the_interface_of_the_leader_has_the_same(nodes: tuple[Site, Site]) -> None:
    status, body = nodes[0].http.get("/api/escrow/replica")
    assert status == 200
    assert {row["node"] for row in json.loads(body)["nodes"]} == {"n1", "n2"}


def test_the_interface_of_the_standby_has_its_own_view(nodes: tuple[Site, Site]) -> None:
    status, body = nodes[1].http.get("/api/escrow/replica", "")
    found = json.loads(body)
    assert status == 200
    assert (found["role"], found["leader"], found["nodes"][0]["node"]) == ("standby", "n2", "n1")


def test_the_standby_refuses_the_rest_with_the_leaders_address(nodes: tuple[Site, Site]) -> None:
    leader, standby = nodes
    status, body = standby.http.get("/api/overview")
    assert (status, json.loads(body)["leader"]) == (503, f"amqp://127.0.0.1:{leader.port}")


@needs_browser
@LOOKS
def test_the_screen_of_the_leader_is_accessible(browser: Any, nodes: tuple[Site, Site], options: Any) -> None:
    with Visitor(browser, nodes[0].http, **options) as page:
        page.click("nav >> text=Replication")
        page.locator("caption", has_text="Take-overs").wait_for()
        assert page.locator("tr", has_text="whose process had ended").count() == 1
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@needs_browser
@LOOKS
def test_the_page_of_the_standby_is_accessible(browser: Any, nodes: tuple[Site, Site], options: Any) -> None:
    leader, standby = nodes
    with Visitor(browser, standby.http, logs_in=False, **options) as page:
        page.get_by_text(f"The leader is amqp://127.0.0.1:{leader.port}").wait_for()
        assert page.get_by_text("This node, n1, is a standby").count() == 1
        assert page.get_by_text("has read the replicated log to its end").count() == 1
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@needs_browser
def test_the_page_of_a_standby_becomes_the_login_when_the_node_leads(browser: Any, nodes: tuple[Site, Site]) -> None:
    leader, standby = nodes
    with Visitor(browser, standby.http, logs_in=False) as page:
        page.get_by_text("is a standby").wait_for()
        leader.kill()
        page.locator("[name=password]").wait_for()
