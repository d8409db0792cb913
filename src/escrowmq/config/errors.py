"""The faults of a configuration."""

from __future__ import annotations


class ConfigError(Exception):
    """The faults of a configuration, one line each: file, key, and the expected value."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
