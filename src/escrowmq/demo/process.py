"""Common parts of the publisher's, consumer's and driver's processes."""

from __future__ import annotations

import signal


def prepare() -> None:
    """Ignore Ctrl-C: the parent process stops the others cleanly."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
