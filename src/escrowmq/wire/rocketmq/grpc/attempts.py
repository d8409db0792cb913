"""Receives that a client repeats because it has not got the answer (`attempt_id`).

A push consumer repeats a receive that failed with the same attempt id. The messages of the lost answer are leased, and
their leases are renewed as long as the client lives, so they are answered again. A receive with another id shows that
the client got the answer before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.wire.rocketmq.grpc.leases import receipt

if TYPE_CHECKING:
    from escrowmq.core.groups.group import Lease
    from escrowmq.core.queues.stream import StreamQueue

LONGEST_ID: Final = 64
"""Longer ids are ignored. Clients use UUIDs."""
MOST: Final = 64
"""Queues of one client whose latest answers are kept."""


class ReceiveSource(NamedTuple):
    """What a client receives from: it has one receive at a time for each group, topic and assigned queue."""

    group: str
    topic: str
    queue: int


class AnsweredMessage(NamedTuple):
    """A message of an answer. Its content is read again if it is needed."""

    stream: StreamQueue
    position: int
    attempts: int
    receipt: str


class ReceiveAttempts:
    """The latest answers of one client."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: OrderedDict[ReceiveSource, tuple[str, Sequence[AnsweredMessage]]] = OrderedDict()

    def take(self, source: ReceiveSource, ident: str) -> Sequence[AnsweredMessage]:
        """Return the messages that were answered to the attempt with this id. Forget the answer, whatever its id."""
        known, found = self._answers.pop(source, ("", ()))
        return found if ident and known == ident else ()

    def keep(self, source: ReceiveSource, ident: str, leases: Iterable[Lease]) -> None:
        """Keep an answer until the next receive from `source`."""
        if not 0 < len(ident) <= LONGEST_ID:
            return
        given = [
            AnsweredMessage(each.stream, each.entry.position, each.attempts, receipt(each.handle)) for each in leases
        ]
        self._answers[source] = ident, given
        if len(self._answers) > MOST:
            self._answers.popitem(last=False)
