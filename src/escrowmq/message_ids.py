"""The texts with which people and programs name a message by its id."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

_UUID: Final = re.compile(
    "(?:urn:uuid:|ID:(?:AMQP_UUID:)?)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})", re.IGNORECASE
)


def id_spellings(text: str) -> tuple[str, ...]:
    """Return the texts of the ids that somebody may mean who writes `text`: `text` itself and, if it is a UUID as AMQP
    0-9-1 (`urn:uuid:…`), JMS (`ID:…`) or a program without hyphens writes it, its usual form and that of AMQP 0-9-1.
    """
    match = _UUID.fullmatch(text)
    if match is None:
        return (text,)
    usual = str(UUID(match[1]))
    return tuple(dict.fromkeys((text, usual, f"urn:uuid:{usual}")))
