"""Configures logging in the broker and in its HTTP process: one line on stderr for each event, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Final, Literal

_QUIET: Final = ("asyncio", "hpack", "uvicorn")
"""Libraries that log details of each connection; hpack logs the headers with the credentials of clients."""


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info connection: opened …`; control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("escrowmq.")
        line = f"{_time(record)} {record.levelname.lower()} {name}: {_printable(record.getMessage())}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One object on each line: time, level, logger, message, and `exception` if there is one.

    The values of the event have keys of their own if the call names them: `extra={"fields": {"peer": …}}`. Values other
    than numbers and truth values become texts; those that are None are left out.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        values: dict[str, object] = getattr(record, "fields", {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        given = {key: value for key, value in values.items() if value is not None}
        line = json.dumps(given | fields, ensure_ascii=False, default=str)
        try:
            line.encode()
        except UnicodeEncodeError:  # a client can bring half of a surrogate pair
            line = json.dumps(given | fields, default=str)
        return line


def configure(
    level: Literal["debug", "info", "warning", "error"], form: Literal["text", "json"], stream: IO[str] | None = None
) -> None:
    """Send messages of `level` and above to `stream` (default: stderr), and to no other handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for library in _QUIET:
        logging.getLogger(library).setLevel(max(root.level, logging.WARNING))
    logging.captureWarnings(capture=True)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
