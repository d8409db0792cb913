"""The page that a standby shows in a browser."""

from __future__ import annotations

import pytest
from starlette.datastructures import URL

from escrowmq.console.answers import HEADERS
from escrowmq.console.standby import leader_console
from tests.unit.admin.http.sites import StandbySite
from tests.unit.admin.standings import standing

PATHS = ("/", "/console", "/console/", "/console/login", "/console/queues/%2F/q")


def page(site: StandbySite, path: str = "/console/") -> str:
    answer = site.request("GET", path, {"host": "n2.example:15672"})
    assert answer.status == 503
    return answer.body.decode()


@pytest.mark.parametrize("path", PATHS)
def test_every_path_says_that_the_node_is_a_standby_and_leads_to_the_leader(path: str) -> None:
    text = page(StandbySite(leader_url="amqp://n1.example:5672"), path)
    assert "is a standby" in text
    assert '<a href="http://n1.example:15672/console/">' in text


def test_a_login_is_answered_with_the_page() -> None:
    answer = StandbySite().request("POST", "/console/login", {}, b"user=guest&password=guest")
    assert answer.status == 503
    assert "set-cookie" not in answer.headers


def test_without_open_metrics_the_page_has_no_figures() -> None:
    text = page(StandbySite())
    assert "This node is behind." in text
    assert not any(each in text for each in ("0x400", "n2", "1.2 min"))
    assert "http.open_metrics" in text


def test_with_open_metrics_the_page_says_how_far_the_node_follows() -> None:
    text = page(StandbySite(open_metrics=True))
    assert "This node, n2, is a standby" in text
    assert "LSN 0x400" in text


def test_without_a_leader_the_page_says_so() -> None:
    assert "No node leads now" in page(StandbySite(leader_url=""))


def test_a_node_that_still_reads_the_log_does_not_say_that_it_has_read_it_or_that_nobody_leads() -> None:
    text = page(StandbySite(leader_url="", reading=True))
    assert "This node still reads the replicated log." in text
    assert "It does not know yet which node leads." in text
    assert "has read the replicated log to its end" not in text
    assert "No node leads now" not in text


def test_the_page_refreshes_itself() -> None:
    answer = StandbySite().request("GET", "/console/?standby=1", {"hx-request": "true"})
    assert answer.status == 200
    assert 'id="standing"' in answer.body.decode()


def test_a_page_of_the_time_when_the_node_led_is_loaded_again() -> None:
    answer = StandbySite().request("GET", "/console/queues", {"hx-request": "true"})
    assert (answer.status, answer.headers["hx-refresh"]) == (204, "true")


def test_pages_have_the_headers_of_the_console_and_its_files_are_there() -> None:
    site = StandbySite()
    headers = site.get("/console/", None).headers
    assert headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert site.get("/console/static/console.css", None).status == 200
    assert site.get("/favicon.ico", None).status == 200


@pytest.mark.parametrize(
    ("own", "leader", "expected"),
    [
        ("https://n2.example/console/", "amqps://n1.example:5671", "https://n1.example/console/"),
        ("http://n2:15672/", "amqp://[fd00::1]:5672", "http://[fd00::1]:15672/console/"),
        ("http://n2:15672/", "amqp://n2:5673", ""),
        ("http://n2:15672/", "", ""),
    ],
)
def test_the_console_of_the_leader_is_on_its_machine_at_the_same_port(own: str, leader: str, expected: str) -> None:
    assert leader_console(URL(own), standing(leader_url=leader)) == expected
