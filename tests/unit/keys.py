"""The keys of the configuration, with the names of their tables."""

from __future__ import annotations

from typing import Final

from tools import configuration

KEYS: Final = [
    f"{table}.{name}" if table else name
    for table, section in configuration.sections()
    for name, _ in configuration.keys(section)
]
