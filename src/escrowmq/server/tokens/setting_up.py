"""Tokens as the configuration describes them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec

from escrowmq.config.errors import ConfigError
from escrowmq.config.security import TokensSection
from escrowmq.server.tokens.cache import KeyCache
from escrowmq.server.tokens.keys import KeysFault, parsed
from escrowmq.server.tokens.logins import TokenLogins
from escrowmq.server.tokens.source import Source, fault_of_url, file_source, url_source
from escrowmq.server.tokens.verifier import TokenRules


def is_installed() -> bool:
    """Return whether the package is installed that checks signatures."""
    try:
        return find_spec("joserfc") is not None
    except ValueError:  # a module that is hidden from this process
        return False


def check_settings(section: TokensSection) -> None:
    """Raises ConfigError if settings are missing or contradict each other, or a file has no keys that can be used."""
    if not section.issuer:
        return
    if not section.audience:
        raise ConfigError("tokens.issuer: requires tokens.audience")
    if (section.keys_file is None) == (not section.keys_url):
        raise ConfigError("tokens.issuer: requires either tokens.keys_file or tokens.keys_url")
    if section.keys_url and (fault := fault_of_url(section.keys_url)):
        raise ConfigError(f"tokens.keys_url: {fault}")
    try:
        source = source_of(section)
        if section.keys_file is not None:
            parsed(source())
    except KeysFault as fault:
        raise ConfigError(
            f"tokens.{'ca' if section.keys_url else f'keys_file = {section.keys_file}'}: {fault}"
        ) from None


def source_of(section: TokensSection) -> Source:
    """Return what reads the keys. Raises KeysFault if `tokens.ca` cannot be used."""
    if section.keys_file is not None:
        return file_source(section.keys_file)
    return url_source(section.keys_url, section.ca, section.timeout_seconds)


def rules_of(section: TokensSection) -> TokenRules:
    """Return what tokens must have."""
    return TokenRules(
        issuer=section.issuer,
        audience=section.audience,
        prefix=f"{section.audience}." if section.scope_prefix is None else section.scope_prefix,
        algorithms=frozenset(section.algorithms),
        user_claim=section.user_claim,
        scope_claim=section.scope_claim,
        leeway=section.leeway_seconds,
    )


def token_logins(
    section: TokensSection, loop: asyncio.AbstractEventLoop, post: Callable[[Callable[[], None]], None]
) -> TokenLogins | None:
    """Return what checks tokens, and begin to read the keys; None if no tokens are accepted. `post` passes a call from
    any thread to a turn.
    """
    if not section.issuer:
        return None
    cache = KeyCache(
        source_of(section),
        section.keys_url or str(section.keys_file),
        lambda work: threading.Thread(target=work, name="token-keys", daemon=True).start(),
        post,
        lambda seconds, call: loop.call_later(seconds, post, call),
        loop.time,
        section.refresh_seconds,
    )
    cache.refresh()
    return TokenLogins(cache, rules_of(section), time.time)
