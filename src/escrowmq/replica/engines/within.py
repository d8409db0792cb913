"""A time limit for a coroutine that may swallow its cancellation, as the NATS client does while it connects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")
_AGAIN_SECONDS: Final = 0.05


async def within(seconds: float, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Return the result of a coroutine, or end it after `seconds`.

    `asyncio.wait_for` cancels once, and waits for ever if that is swallowed. Raises TimeoutError.
    """
    task = asyncio.ensure_future(coroutine)
    try:
        if not (await asyncio.wait({task}, timeout=seconds))[0]:
            raise TimeoutError
        return task.result()
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_AGAIN_SECONDS)
        if not task.cancelled():
            task.exception()  # it counts as retrieved
