"""A message for tests of selectors: application properties, and fields by their full names."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.wire.selectors.values import APPLICATION


class Message:
    """Implements `MessageFields`. A name without a section is that of an application property."""

    def __init__(self, application: Mapping[str, object], fields: Mapping[str, object] | None = None) -> None:
        self._values = {**{APPLICATION + name: value for name, value in application.items()}, **(fields or {})}

    def value(self, name: str) -> object | None:
        return self._values.get(name)
