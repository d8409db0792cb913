"""When a leader may deliver, and when another node may claim. Times are arguments, in milliseconds of a steady clock.

Safety does not depend on this module: the fold decides which entries count. It only limits how long a leader without
the log goes on, how soon another one takes its place, and which node may put back what the log has lost.

A leader may deliver for `LEASE_MS` after the beginning of the last append that counted. Other nodes do not claim while
they hear of a leader, and for `SILENCE_MS` after that. So, if the clocks of two machines run at nearly the same speed,
they do not deliver at the same time.

A node that does not hear of a leader, or that doubts it, looks at its own copy of the journal. Usually, it has what the
log has. If the copy has more, the log may have lost entries. Then the node gives notice, so that all nodes learn who
has how much, and the one with the longest copy claims. The others wait for it, but not for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from escrowmq.replica.fold import CopyEnd

LEASE_MS: Final = 2000
SILENCE_MS: Final = 3000
GATHER_MS: Final = 1000
"""For so long after a notice, nodes wait for those of others."""
PATIENCE_MS: Final = 60_000
"""For so long after a notice, nodes wait for the one whose copy is longer."""


class LeaderLease:
    """The leader's view."""

    def __init__(self, lease_ms: int = LEASE_MS) -> None:
        self._lease_ms = lease_ms
        self._since: int | None = None

    def acknowledged(self, begun_ms: int) -> None:
        """Note that an append counts that began at this time. The answers may come in any order."""
        self._since = begun_ms if self._since is None else max(self._since, begun_ms)

    def holds(self, now_ms: int) -> bool:
        """Return whether the leader may deliver."""
        return self._since is not None and now_ms - self._since < self._lease_ms


class Silence:
    """How long nothing of the leader has counted, as another node sees it."""

    def __init__(self, now_ms: int, silence_ms: int = SILENCE_MS) -> None:
        """A node that has just started has heard nothing. It waits as if it had."""
        self._silence_ms = silence_ms
        self._since = now_ms

    def heard(self, now_ms: int) -> None:
        """Note that an entry counted that this node has just read."""
        self._since = max(self._since, now_ms)

    def end(self, now_ms: int) -> None:
        """Note that the leader is known to be gone, so that nobody need wait for it."""
        self._since = min(self._since, now_ms - self._silence_ms)

    def lasts(self, now_ms: int) -> bool:
        """Return whether the leader seems to be gone."""
        return now_ms - self._since >= self._silence_ms


class Sign(Enum):
    """What a node knows of a leader."""

    HEARD = auto()
    """Entries of it count."""
    SILENT = auto()
    """Nothing has counted for some time, or nobody has ever led."""
    RESIGNED = auto()
    DOUBTED = auto()
    """The log has lost entries of it, as this node or another one has found."""


class CopyComparison(Enum):
    """How this node's copy of the journal compares with the log."""

    EQUAL = auto()
    LONGER = auto()


class Notices(Enum):
    """What the notices in the log say, since the last claim."""

    NONE = auto()
    OWN_MISSING = auto()
    """Others have given notice, and no copy of theirs is longer than this node's."""
    OWN_FRESH = auto()
    """This node has the longest copy, and has given notice. Others may still do so."""
    OWN_LONGEST = auto()
    """This node has the longest copy, and has waited for others."""
    OTHER_LONGEST = auto()
    OTHER_LATE = auto()
    """Another node has a longer copy, but has not claimed for a long time."""


class StandbyStep(Enum):
    """What the node does now."""

    FOLLOW = auto()
    NOTICE = auto()
    WAIT = auto()
    CLAIM = auto()


def _row(*steps: StandbyStep) -> Mapping[Notices, StandbyStep]:
    return MappingProxyType(dict(zip(Notices, steps, strict=True)))


_SETTLED: Final = (StandbyStep.NOTICE, StandbyStep.WAIT, StandbyStep.CLAIM, StandbyStep.WAIT, StandbyStep.CLAIM)
TABLE: Final[Mapping[tuple[Sign, CopyComparison], Mapping[Notices, StandbyStep]]] = MappingProxyType(
    {
        (Sign.HEARD, CopyComparison.EQUAL): _row(*[StandbyStep.FOLLOW] * 6),
        (Sign.HEARD, CopyComparison.LONGER): _row(*[StandbyStep.FOLLOW] * 6),
        (Sign.SILENT, CopyComparison.EQUAL): _row(StandbyStep.CLAIM, *_SETTLED),
        (Sign.SILENT, CopyComparison.LONGER): _row(StandbyStep.NOTICE, *_SETTLED),
        (Sign.RESIGNED, CopyComparison.EQUAL): _row(StandbyStep.CLAIM, *_SETTLED),
        (Sign.RESIGNED, CopyComparison.LONGER): _row(StandbyStep.NOTICE, *_SETTLED),
        (Sign.DOUBTED, CopyComparison.EQUAL): _row(StandbyStep.NOTICE, *_SETTLED),
        (Sign.DOUBTED, CopyComparison.LONGER): _row(StandbyStep.NOTICE, *_SETTLED),
    }
)
"""What a node does. A leader that is heard of may have put frames into the log that this node has not read yet."""


@dataclass(slots=True)
class Standing:
    """The view of a node that does not lead."""

    node: str
    silence: Silence
    found_loss: bool = False
    """Whether this process had to read the log again because it had lost entries."""
    _noticed_ms: int | None = None

    def sign(self, now_ms: int, *, resigned: bool, hole: bool, notices: Mapping[str, CopyEnd], longer: bool) -> Sign:
        """Return what this node knows of a leader.

        Args:
            now_ms: The time.
            resigned: `Fold.resigned`.
            hole: `Fold.hole`.
            notices: `Fold.notices`.
            longer: Whether this node's copy is longer than the frames that count.
        """
        if hole or notices or (self.found_loss and longer):
            return Sign.DOUBTED
        if resigned:
            return Sign.RESIGNED
        return Sign.SILENT if self.silence.lasts(now_ms) else Sign.HEARD

    def notices(self, now_ms: int, notices: Mapping[str, CopyEnd], copy: CopyEnd) -> Notices:
        """Return what the notices say. Of nodes with equal copies, the one whose name comes first goes first."""
        if not notices:
            self._noticed_ms = None
            return Notices.NONE
        if self._noticed_ms is None:
            self._noticed_ms = now_ms
        waited = now_ms - self._noticed_ms
        others = [(node, end) for node, end in notices.items() if node != self.node]
        if any(end > copy or (end == copy and node < self.node) for node, end in others):
            return Notices.OTHER_LONGEST if waited < PATIENCE_MS else Notices.OTHER_LATE
        if notices.get(self.node) != copy:
            return Notices.OWN_MISSING
        return Notices.OWN_FRESH if waited < GATHER_MS else Notices.OWN_LONGEST


def next_step(sign: Sign, holding: CopyComparison, notices: Notices) -> StandbyStep:
    """Return what the node does now."""
    return TABLE[sign, holding][notices]
