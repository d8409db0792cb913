"""The event loop of the broker: uvloop if it is installed, which costs a third less."""

from __future__ import annotations

import asyncio
import contextlib


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
