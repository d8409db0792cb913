"""Histories in which two nodes claim the same epoch, because the log has lost the claim of the first one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.simulation.replica.world import Node, World

FORKS: Final = 0.02
"""The probability that a step is such an event."""
FRAME: Final = 16
"""The bytes of each frame in it. Frames of one size are told apart by their leaders only."""


class ForkingWorld(World):
    """A world whose log loses entries, sometimes exactly those of a new leader, which goes on beside the next one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, losing=True)
        self.forks = 0

    def _step(self) -> None:
        if self._rng.random() < FORKS:
            self._fork()
        else:
            super()._step()

    def _fork(self) -> None:
        free = [node for node in self.nodes if not node.busy]
        if len(free) < 2:
            return
        first, second = self._rng.sample(free, 2)
        quiet, self.log.quiet = self.log.quiet, True
        for node in (first, second):
            self._act(node, self._follow)
        end = self.log.end()
        self._act(first, self._take_over)
        self._act(first, self._publish_equal)
        self._lose(self.log.end() - end)
        self._act(second, self._take_over)
        for node in (second, first, second):
            self._act(node, self._publish_equal)
        self.log.quiet = quiet
        self.forks += 1

    def _publish_equal(self, node: Node) -> None:
        """Publish a frame as long as those of the other leader."""
        if node.leader.leads:
            self._begin(node)
            self._append(node, (b"%s %d " % (node.name.encode(), self._next())).ljust(FRAME, b"\0"))


KINDS: Final[dict[str, Callable[[int], World]]] = {
    "the protocol": World,
    "the protocol with losses": partial(World, losing=True),
    "the protocol with losses and forks": ForkingWorld,
}
"""All kinds of histories, each made from a seed."""
