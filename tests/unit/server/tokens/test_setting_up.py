"""Tokens as the configuration describes them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escrowmq.config.errors import ConfigError
from escrowmq.config.security import TokensSection
from escrowmq.server.tokens.setting_up import check_settings, is_installed, rules_of, token_logins
from tests.tokens import AUDIENCE, ISSUER, key_set


def section(**keys: Any) -> TokensSection:
    return TokensSection(issuer=ISSUER, audience=AUDIENCE, **keys)


def test_no_issuer_needs_nothing() -> None:
    check_settings(TokensSection())


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, "tokens.issuer: requires either tokens.keys_file or tokens.keys_url"),
        ({"keys_file": Path("x"), "keys_url": "https://x/"}, "requires either tokens.keys_file or tokens.keys_url"),
        ({"keys_url": "ftp://x/"}, "tokens.keys_url: an address such as"),
        ({"keys_file": Path("missing")}, "tokens.keys_file = missing: No such file or directory"),
        ({"keys_file": Path(__file__)}, "it is not JSON"),
        ({"keys_url": "https://x/", "ca": Path("missing")}, "tokens.ca: missing: "),
    ],
)
def test_settings_that_cannot_work_are_refused(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_settings(section(**keys))


def test_the_prefix_of_scopes_is_the_audience_unless_it_is_set() -> None:
    assert rules_of(section()).prefix == "broker."
    assert rules_of(section(scope_prefix="")).prefix == ""
    assert rules_of(section(scope_prefix="rmq/")).prefix == "rmq/"


def test_a_missing_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_installed()
    monkeypatch.setitem(sys.modules, "joserfc", None)
    assert not is_installed()


def test_keys_are_read_on_a_thread_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(key_set("one"))

    async def run() -> None:
        loop, read = asyncio.get_running_loop(), asyncio.Event()

        def post(call: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(call)
            loop.call_soon_threadsafe(read.set)

        found = token_logins(section(keys_file=path), loop, post)
        assert found is not None
        await read.wait()
        assert found.figures()["keys"] == 1
        found.stop()

    asyncio.run(run())


def test_without_an_issuer_no_tokens_are_accepted() -> None:
    async def run() -> None:
        assert token_logins(TokensSection(), asyncio.get_running_loop(), lambda call: call()) is None

    asyncio.run(run())
