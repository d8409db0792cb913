"""`/health` and `/health/leader`, which need no login and say nothing else of the broker."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from escrowmq.admin.http.answers import JsonAnswer
from escrowmq.admin.http.broker import AskedBroker, BrokerUnavailable

HEALTH_SECONDS: Final = 5.0
"""The time in which the broker must answer."""


def health_routes(broker: AskedBroker) -> list[Route]:
    """Return the routes. Their handlers raise BrokerUnavailable."""

    async def health(request: Request) -> Response:
        """Say whether the broker answers in time, and whether it is a standby."""
        del request
        return JsonAnswer({"status": await _role(broker) or "ok"})

    async def leader_health(request: Request) -> Response:
        """Say whether the broker serves clients. A standby does not, nor does a leader that the log does not answer."""
        del request
        role = await _role(broker)
        return JsonAnswer({"status": role or "ok"}, 503 if role else 200)

    return [Route("/health", health), Route("/health/leader", leader_health)]


async def _role(broker: AskedBroker) -> str:
    """Return `standby` or `cut off` if the broker serves no clients, and nothing otherwise."""
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            return await broker.ask("ping") or ""
    except TimeoutError as error:
        raise BrokerUnavailable(f"the broker did not answer within {HEALTH_SECONDS:g} s") from error
