"""What the publisher's and the consumer's process have in common."""

from __future__ import annotations

import signal


def prepare() -> None:
    """Leave Ctrl-C to the process that started this one: it ends both in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
