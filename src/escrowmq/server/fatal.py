"""Ends a process that must not send any more answers."""

from __future__ import annotations

import logging
import os
from typing import Final, NoReturn

EXIT_CODE: Final = 70
"""EX_SOFTWARE, an internal error. A new start recovers the state that is on disk."""

_log = logging.getLogger("escrowmq.server")


def die(text: str, error: BaseException | None = None) -> NoReturn:
    """Log one line, with a traceback if there is an `error`, and end the process. May be called on any thread.

    Answers that wait may depend on records that are not on disk (DUR-2). Therefore no exit handler runs, and no socket
    is flushed.
    """
    try:
        _log.critical("%s; the broker stops, restart it to recover from the journal", text, exc_info=error)
        for handler in logging.getLogger().handlers:
            handler.flush()
    finally:
        os._exit(EXIT_CODE)
