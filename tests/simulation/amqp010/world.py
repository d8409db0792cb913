"""The world of queues, with clients of AMQP 0-10."""

from __future__ import annotations

from typing import Final

from tests.simulation.amqp010.dialect import AMQP010
from tests.simulation.steps import WEIGHTS as COMMON
from tests.simulation.world import World

WEIGHTS: Final = COMMON | {"get": 0, "recover": 12, "exclusive": 0}
"""The protocol has no `get`, and its exclusive queues outlive their sessions. `recover` grants messages to a
subscription.
"""


class SessionWorld(World):
    """Executes histories over AMQP 0-10."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, dialect=AMQP010)
