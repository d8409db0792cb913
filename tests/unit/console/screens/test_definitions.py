"""Definitions are downloaded and imported by administrators."""

from __future__ import annotations

import json

import pytest

from tests.unit.admin.test_definitions import RABBITMQ
from tests.unit.console.sites import Browser, notices

PAGE = "/console/definitions"


def sent(browser: Browser, text: str, vhost: str = "") -> list[tuple[str, str]]:
    """Import a text over the form of the page, and return the notices that follow."""
    token = browser.text(PAGE).split('name="form_token" value="')[1].partition('"')[0]
    answer = browser.send(PAGE + "/import", {"form_token": token, "definitions": text, "vhost": vhost})
    assert answer.status == 303
    return notices(browser.open(answer.headers["location"]))


def test_a_file_of_a_broker_is_imported_by_another() -> None:
    first, second = Browser(), Browser()
    ((state, text),) = sent(first, RABBITMQ.read_text("utf-8"))
    assert (state, "queues" in text) == ("done", True)
    file = first.open(PAGE + "/file")
    assert file.headers["content-disposition"] == 'attachment; filename="definitions.json"'
    definitions = json.loads(file.body)
    definitions["users"] = [user for user in definitions["users"] if user["name"] != "guest"]  # its hash is not one
    assert sent(second, json.dumps(definitions))[0][0] == "done"
    assert second.open(PAGE + "/file").body == file.body


def test_the_definitions_of_one_virtual_host_go_into_another() -> None:
    browser = Browser()
    browser.server.broker.directory.add_vhost("a/b")
    queue = {"name": "q", "durable": True, "auto_delete": False, "arguments": {}}
    assert sent(browser, json.dumps({"queues": [queue]}), "a/b")[0][0] == "done"
    assert "q" in browser.server.broker.directory.vhost("a/b").queues
    file = browser.open(PAGE + "/file?vhost=a%2Fb")
    assert 'filename="definitions-a_b.json"' in file.headers["content-disposition"]
    assert [each["name"] for each in json.loads(file.body)["queues"]] == ["q"]
    assert browser.open(PAGE + "/file?vhost=none").status == 400


@pytest.mark.parametrize("text", ["", "[", "[]", '{"queues": 1}', '{"queues": [{"vhost": "none", "name": "q"}]}'])
def test_a_file_that_cannot_be_imported_is_refused(text: str) -> None:
    assert sent(Browser(), text)[0][0] == "failed"


def test_others_than_administrators_are_refused() -> None:
    browser = Browser(user="m")
    assert browser.open(PAGE + "/file").status == 403
    token = browser.text("/console/").split('name="form_token" value="')[1].partition('"')[0]
    form = {"form_token": token, "definitions": '{"queues": [{"vhost": "/", "name": "q"}]}'}
    assert browser.send(PAGE + "/import", form).status == 403
    assert not browser.server.broker.directory.vhost("/").queues


def test_a_form_of_another_site_imports_nothing() -> None:
    browser = Browser()
    assert browser.send(PAGE + "/import", {"form_token": "x", "definitions": "{}"}).status == 403


def test_the_file_for_a_virtual_host_has_a_name_that_a_header_can_carry() -> None:
    browser = Browser()
    browser.server.broker.directory.add_vhost("日本 é")
    answer = browser.open("/console/definitions/file?vhost=%E6%97%A5%E6%9C%AC%20%C3%A9")
    assert (answer.status, answer.headers["content-disposition"]) == (
        200,
        'attachment; filename="definitions-____.json"',
    )
