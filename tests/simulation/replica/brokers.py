"""The whole broker on a journal that several nodes share: its worlds, and bugs that their histories must find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from escrowmq.journal.journal import Journal
from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.leader import Leader
from tests.simulation import disks
from tests.simulation.history import WEIGHTS_OF, MakeWorld
from tests.simulation.planting import planted
from tests.simulation.replica.cluster import Cluster, Sink
from tests.simulation.world import World

WORLDS: Final[dict[str, MakeWorld]] = {getattr(world, "__name__", ""): world for world in (World, *WEIGHTS_OF)}
STEPS: Final = 200
SEARCHING: Final = ("BranchWorld", "World")
"""The worlds that find each of the planted bugs."""


@contextmanager
def clusters() -> Iterator[list[Cluster]]:
    """Let all machines be clusters, and return these."""
    made: list[Cluster] = []

    def make(seed: int) -> Cluster:
        made.append(Cluster(seed))
        return made[-1]

    with planted({(disks, "make_disks"): make}):
        yield made


def sent_only(self: Sink) -> None:
    """Do not wait until a frame counts."""
    self._unsent.clear()


def nothing_restored(self: Leader, pieces: object) -> int:
    """Lead without what the log has lost."""
    return 0


def never_dropped(self: DiskCopy, epoch: int) -> None:
    """Put back frames that never counted, after another leader has served clients without them."""


def from_memory(self: Journal, after: int) -> int:
    """Answer without a proof that this node still leads."""
    return after


PLANTED: Final[dict[str, dict[tuple[Any, str], object]]] = {
    "answers do not wait for the log": {(Sink, "wait"): sent_only},
    "an answer from memory without a proof": {(Journal, "proof_lsn"): from_memory},
    "what the log has lost is not put back": {(Leader, "restore"): nothing_restored},
    "a frame that never counted comes back": {(DiskCopy, "drop_uncounted"): never_dropped},
}
