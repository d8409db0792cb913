"""Ends a process that must not send any more answers, or lets it begin again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
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


def restart(text: str, child: int | None) -> NoReturn:
    """Log one line, and begin again with the same command line and process id. May be called on any thread.

    All sockets and files are closed at once by that, and nothing more is sent, as in `die`. `child` is the id of a
    process that has some of these sockets, too. It is killed first.
    """
    try:
        _log.warning("%s; the process begins again", text)
        for handler in logging.getLogger().handlers:
            handler.flush()
        if child is not None:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the command line of this process
    finally:
        os._exit(EXIT_CODE)
