"""Handle Ctrl-C during an audit with a one-line message instead of pages of errors from Spark's processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import click

EXIT_CODE: Final = 130
"""128 + SIGINT: the exit status that a shell reports for a program ended by SIGINT."""


class InterruptedAuditError(click.ClickException):
    """The user interrupted the audit."""

    exit_code = EXIT_CODE


@contextmanager
def interruptible() -> Iterator[Callable[[], object]]:
    """Let Ctrl-C end the block and the Java process of its Spark session.

    The context manager returns a function that the block must call from time to time. PySpark installs a signal handler
    of its own when it creates a session; the function restores ours.

    Raises:
        InterruptedAuditError: the user pressed Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # Python handles signals in the main thread only
        return
    sys.stderr.flush()
    told = os.dup(2)
    happened = False

    def stop(_number: int, frame: FrameType | None) -> None:
        nonlocal happened
        if not happened:
            happened = True
            _silence()
            _end_spark()
            _end_what_starts(frame)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: signal.signal(signal.SIGINT, stop)
    finally:
        signal.signal(signal.SIGINT, before)
        sys.stderr.flush()
        os.dup2(told, 2)
        os.close(told)
        if happened:
            raise InterruptedAuditError("interrupted: nothing was recorded; the next run starts from the same place")


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)


def _end_spark() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()  # it ignores SIGINT, and would continue until it noticed that its parent has ended


def _end_what_starts(frame: FrameType | None) -> None:
    """End the processes that the interrupted functions have started.

    PySpark has a gateway only after Java has answered. A Java that starts after its parent has ended would never end.
    """
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if isinstance(value, subprocess.Popen) and getattr(value, "pid", None) is not None:
                value.kill()
        frame = frame.f_back
