"""Applies settings that may change while the broker runs: the level and form of the log, and the certificates."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from typing import Final

from pydantic import BaseModel

from escrowmq import logs
from escrowmq.config.config import Config
from escrowmq.config.errors import ConfigError
from escrowmq.server.tls import server_context

APPLIED: Final = ("log", "tls")
"""The tables whose keys take effect without a restart."""

_log = logging.getLogger("escrowmq.server")


class Reloading:
    """Reads the configuration again on request. A fault is logged, and everything stays as it was.

    `config` has the settings that are in effect, as far as they may change.
    """

    def __init__(self, config: Config, read: Callable[[], Config]) -> None:
        """`config` is the configuration of the start. `read` returns the present one, or raises ConfigError."""
        self.config = config
        self.context: ssl.SSLContext | None = None
        """The certificates that are in effect, if there are listeners with TLS."""
        self._started = config
        self._read = read

    def fault(self) -> str:
        """Return why the configuration could not be read now; nothing if it could."""
        try:
            self._present()
        except ConfigError as error:
            return "; ".join(error.lines)
        return ""

    def _present(self) -> tuple[Config, ssl.SSLContext | None]:
        """Return the present configuration, and the certificates if there are listeners with TLS."""
        config = self._read()
        secure = self.context is not None and config.tls.certificate and config.tls.key
        return config, server_context(config.tls) if secure else None

    def reload(self, renew: Callable[[ssl.SSLContext], None]) -> None:
        """Read the configuration and the certificates, and apply them to the log and to new connections.

        `renew` gives the listeners their TLS context. It is called only if there are listeners with TLS.
        """
        try:
            config, context = self._present()
        except ConfigError as error:
            for line in error.lines:
                _log.error("the configuration was not reloaded, because it has a fault: %s", line)
            return
        self.config = config
        logs.configure(config.log.level, config.log.format)
        if context is not None:
            self.context = context
            renew(context)
        waiting = sorted(set(_differences(self._started, config)))
        if waiting:
            _log.warning("these settings were changed, and take effect at the next start: %s", ", ".join(waiting))
        _log.info("the configuration was reloaded: the log's settings and the certificates")


def _differences(old: Config, new: Config) -> Iterator[str]:
    """Yield the keys that differ and are not applied."""
    for name in Config.model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after or name in APPLIED:
            continue
        if isinstance(before, BaseModel):
            yield from (
                f"{name}.{key}" for key in type(before).model_fields if getattr(before, key) != getattr(after, key)
            )
        else:
            yield name
