"""Ctrl-C during an audit: one line, instead of pages of what Spark's processes say when they lose each other."""

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
"""As a shell says of a program that was ended by SIGINT."""


class InterruptedAuditError(click.ClickException):
    """The user does not want it any more."""

    exit_code = EXIT_CODE


@contextmanager
def interruptible() -> Iterator[Callable[[], object]]:
    """Ctrl-C ends the block, and the Java process of its Spark session. Raises InterruptedAuditError then.

    What the block is given is to be called now and then: PySpark listens to the signal itself when it makes a session,
    and cancels jobs amid of other calls.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # signals come to the main thread only
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
            raise InterruptedAuditError("interrupted: this run does not count, and the next one does the same again")


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)


def _end_spark() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()  # it does not listen to SIGINT, and would go on until it notices that nobody is there


def _end_what_starts(frame: FrameType | None) -> None:
    """End the processes that the interrupted functions have begun: PySpark has a gateway only once Java has answered,
    and a Java that cannot say so any more stays for ever.
    """
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if isinstance(value, subprocess.Popen) and getattr(value, "pid", None) is not None:
                value.kill()
        frame = frame.f_back
