"""Answers in JSON, whatever texts and numbers the broker has: clients can give objects arguments that JSON has not."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import JSONResponse


class JsonAnswer(JSONResponse):
    """An answer in JSON. Infinities and NaN become texts, since one of them would make all lists unreadable; half of a
    surrogate pair, which UTF-8 cannot encode, is written as an escape.
    """

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return encoded(content)


def encoded(content: Any) -> bytes:
    """Return a value in the JSON of an answer."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # also UnicodeEncodeError
        return json.dumps(_finite(content), allow_nan=False, separators=(",", ":")).encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
