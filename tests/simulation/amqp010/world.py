"""The world of queues, with clients of AMQP 0-10."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulation.amqp010.actor import TIMEOUT, Actor
from tests.simulation.amqp010.dialect import AMQP010
from tests.simulation.amqp010.kept import KeptSessions
from tests.simulation.steps import WEIGHTS as COMMON
from tests.simulation.steps import Step
from tests.simulation.world import CLIENTS, OPTIONS, World

WEIGHTS: Final = COMMON | {"get": 0, "recover": 12, "exclusive": 0, "break": 12, "steal": 4, "answer": 10}
"""The protocol has no `get`, and its exclusive queues outlive their sessions. `recover` grants messages to a
subscription. Connections break while answers are on their way. `steal` attaches a session by force, while its former
connection still exists.
"""


class SessionWorld(World):
    """Executes histories over AMQP 0-10. Connections break often, since sessions are kept."""

    def __init__(self, seed: int) -> None:
        limits = replace(OPTIONS.limits, session_timeout=TIMEOUT)
        super().__init__(seed, dialect=AMQP010, options=replace(OPTIONS, limits=limits))

    def pump(self) -> None:
        """Run until everything is at rest, and all sessions have a connection. Some connections may be closing."""
        super().pump()
        while self._attach_again():
            super().pump()
        assert isinstance(self.oracle, KeptSessions)
        self.oracle.at_rest()

    def _attach_again(self) -> bool:
        """Connect the clients that have a session without a connection. Return whether there is one."""
        found = False
        for number, actor in enumerate(self.actors):
            if isinstance(actor, Actor) and actor.port is None and actor.kept is not None:
                self._connect(actor, f"client {number}")
                found = True
        return found

    def _step(self, step: Step) -> None:
        if step.kind == "steal":
            self._steal(step.who % CLIENTS)
        else:
            super()._step(step)

    def _steal(self, number: int) -> None:
        """Let a client connect again, while the broker does not know that its connection is lost."""
        actor = self.actors[number]
        former = actor.port
        if former is None or self._connections[former].undecided:
            return
        assert isinstance(actor, Actor)
        actor.lost()
        actor.force = True
        self._connect(actor, f"client {number}")
        self._arrive(actor, len(actor.up))
        self._lose(former)
