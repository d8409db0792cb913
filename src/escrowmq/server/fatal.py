"""The end of a process that must not answer anything more."""

from __future__ import annotations

import logging
import os
from typing import Final, NoReturn

EXIT_CODE: Final = 70
"""EX_SOFTWARE: an internal fault. Start again to recover from what is on disk."""

_log = logging.getLogger("escrowmq.server")


def die(text: str, error: BaseException | None = None) -> NoReturn:
    """Log one line (for a fault of ours with its traceback) and end the process, from any thread, without answering.

    Held answers stand on what may not be on disk (DUR-2): no handler runs, no socket is flushed.
    """
    try:
        _log.critical("%s; the broker stops, start it again to recover from what is on disk", text, exc_info=error)
        for handler in logging.getLogger().handlers:
            handler.flush()
    finally:
        os._exit(EXIT_CODE)
