"""Renewed tokens, as clients of OAuth send them."""

from __future__ import annotations

import pytest

from escrowmq.core.access.grant import Grant
from tests.unit.wire.amqp10.clients import server
from tests.unit.wire.amqp10.management.manager import Manager, request_of


def test_a_token_is_accepted_and_handed_on() -> None:
    manager = Manager()
    assert manager.ask("PUT", "/auth/tokens", b"new") == (204, None)
    assert manager.server.secrets == [("guest", b"new")]


def test_a_token_is_binary() -> None:
    assert Manager().code("PUT", "/auth/tokens", "new") == 400


def with_token() -> Manager:
    """Return a client that has logged in by a token."""
    made = server()
    made.grants = {"guest": Grant("guest", ["read:*/*"]), "new": Grant("guest", ["configure:*/*"])}
    made.grants["eve"] = Grant("eve", [])
    return Manager(made)


def test_a_renewed_token_has_effect_from_its_answer_on() -> None:
    manager = with_token()
    assert manager.code("PUT", "/queues/q", {}) == 403
    assert manager.ask("PUT", "/auth/tokens", b"new") == (204, None)
    assert manager.code("PUT", "/queues/q", {}) == 201
    assert manager.server.secrets == []


@pytest.mark.parametrize("token", [b"wrong", b"eve", b"\xff"])
def test_a_token_that_is_refused_leaves_the_former_one(token: bytes) -> None:
    manager = with_token()
    code, why = manager.ask("PUT", "/auth/tokens", token)
    assert code == 403
    assert why.startswith("the new token")
    assert manager.code("PUT", "/queues/q", {}) == 403


def test_the_answer_waits_until_the_token_is_checked() -> None:
    manager = with_token()
    manager.server.slow = True
    manager.send(request_of("PUT", "/auth/tokens", b"new"))
    manager.server.login_done()
    manager.client.collect()
    assert manager.receive()[1] == (204, None)
