"""Definitions over HTTP."""

from __future__ import annotations

import json

import pytest

from tests.unit.admin.http.sites import HttpSite
from tests.unit.admin.test_definitions import RABBITMQ


@pytest.mark.parametrize("path", ["definitions", "definitions/%2F", "definitions/shop"])
def test_definitions_are_exported_and_imported(path: str) -> None:
    site = HttpSite()
    site.server.broker.access.set_password("guest", "$argon2id$x")
    assert site.post("/api/definitions", json.loads(RABBITMQ.read_bytes())).status == 204
    document = site.get("/api/" + path).json
    assert document["product_name"] == "EscrowMQ"
    assert site.post("/api/" + path, document).status == 204
    assert site.get("/api/" + path).json == document


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("tag", ["management", "policymaker", "monitoring"])
def test_definitions_are_for_administrators(tag: str) -> None:
    site = HttpSite()
    site.server.broker.access.add_user("u", "hash", (tag,))
    site.server.broker.access.set_permission("u", "/", ".*", ".*", ".*")
    for path in ("/api/definitions", "/api/definitions/%2F"):
        assert site.get(path, "u").status == site.post(path, {}, "u").status == 401


def test_definitions_that_cannot_be_imported_are_refused() -> None:
    site = HttpSite()
    assert site.post("/api/definitions", {"queues": 1}).status == 400
    assert site.post("/api/definitions", {"queues": [{"vhost": "none", "name": "q"}]}).status == 404
    for answer in (site.get("/api/definitions/none"), site.post("/api/definitions/none", {})):
        assert answer.status == 404
