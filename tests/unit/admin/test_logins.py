"""The login of an operator."""

from __future__ import annotations

from escrowmq.admin.service import AdminService
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


def test_a_login_returns_the_user_with_its_tags() -> None:
    server, _ = pair()
    server.broker.access.set_tags("guest", ("monitoring",))
    operations = AdminService(FakeProcess(server)).operations
    found = perform(operations, "user.login", address="::1", user="guest", password="password of guest")
    assert found == {"user": "guest", "tags": ["monitoring"], "reason": ""}


def test_a_refused_login_returns_the_reason() -> None:
    operations = AdminService(FakeProcess(pair()[0])).operations
    found = perform(operations, "user.login", address="10.0.0.1", port=5, user="guest", password="wrong")
    assert found == {"user": None, "tags": [], "reason": "refused from 10.0.0.1:5"}


def test_a_login_by_a_token_returns_tags_and_scopes_of_a_user_that_need_not_be_listed() -> None:
    operations = AdminService(FakeProcess(pair()[0])).operations
    found = perform(operations, "token.login", address="::1", token="alice:tag:monitoring read:*/*")
    scopes = ["tag:monitoring", "read:*/*"]
    assert found == {"user": "alice", "tags": ["monitoring"], "scopes": scopes, "expires_ms": 0, "reason": ""}


def test_a_refused_token_returns_the_reason() -> None:
    operations = AdminService(FakeProcess(pair()[0])).operations
    found = perform(operations, "token.login", address="10.0.0.1", port=5, token=":")
    assert found == {"user": None, "tags": [], "scopes": [], "expires_ms": 0, "reason": "refused from 10.0.0.1:5"}
