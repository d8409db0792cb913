"""Keep the output of Java, Spark and its workers, which they write to the standard error, in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_STDERR = 2


@contextmanager
def diverted(log: Path) -> Iterator[TextIO]:
    """Send the standard error of this process, and of those that it starts, to the file `log`.

    The context manager returns a stream that still leads to the former standard error.
    """
    sys.stderr.flush()
    former = os.dup(_STDERR)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.dup2(file, _STDERR)
    os.close(file)
    told = open(os.dup(former), "w", encoding="utf-8", errors="replace") if _is_stderr() else sys.stderr  # noqa: PTH123, SIM115
    try:
        yield told
    finally:
        sys.stderr.flush()
        told.flush()
        os.dup2(former, _STDERR)
        os.close(former)
        if told is not sys.stderr:
            told.close()


def _is_stderr() -> bool:
    """Whether Python's standard error is that of the process, and not replaced by a program that embeds us."""
    try:
        return sys.stderr.fileno() == _STDERR
    except (OSError, ValueError):
        return False
