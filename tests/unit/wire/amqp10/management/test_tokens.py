"""Renewed tokens, as clients of OAuth send them."""

from __future__ import annotations

from tests.unit.wire.amqp10.management.manager import Manager


def test_a_token_is_accepted_and_handed_on() -> None:
    manager = Manager()
    assert manager.ask("PUT", "/auth/tokens", b"new") == (204, None)
    assert manager.server.secrets == [("guest", b"new")]


def test_a_token_is_binary() -> None:
    assert Manager().code("PUT", "/auth/tokens", "new") == 400
