"""Answers of RabbitMQ 3.10.8, recorded in rabbitmq/*.json with pika 1.3, for the tests beside this module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "rabbitmq"


class Timestamp(int):
    """Stands for a protocol's class of times."""


def recorded(name: str) -> dict[str, Any]:
    """Return one of the files. `{"$bytes": …}` and `{"$time": …}` stand for values that JSON lacks."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"), object_hook=_value)
    return content


def reason(reply: str) -> str:
    """Return the text after the name of the reply code."""
    return reply.partition(" - ")[2]


def _value(found: dict[str, Any]) -> Any:
    if found.keys() == {"$bytes"}:
        return found["$bytes"].encode()
    if found.keys() == {"$time"}:
        return Timestamp(found["$time"])
    return found
