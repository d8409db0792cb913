"""The states of a half message, and the inputs that change them, as a table.

A half message is PENDING until its producer decides it. If the last check passes without a decision, it is PARKED: from
then on only an operator decides it, and a producer's late decision is refused (HALF-6). COMMITTED and ROLLED_BACK are
final. A decision that repeats the one in force is a success without effect; one that contradicts it is refused
(HALF-3).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from escrowmq.core.conditions import BrokerError, Condition


class HalfState(IntEnum):
    """The state of a half message. The numbers are part of the journal's format."""

    PENDING = 1
    PARKED = 2
    COMMITTED = 3
    ROLLED_BACK = 4

    @property
    def decided(self) -> bool:
        """Whether the state is final."""
        return self >= HalfState.COMMITTED

    @property
    def title(self) -> str:
        """The state in words."""
        return self.name.lower().replace("_", " ")


class HalfInput(IntEnum):
    """An input to the state of a half message."""

    COMMIT = 1
    ROLL_BACK = 2
    UNKNOWN = 3
    """The producer does not know the outcome yet."""
    CHECK = 4
    """A check was written to a live producer."""
    EXHAUST = 5
    """The time after the last check has passed."""
    RESUME = 6
    """An operator has the message checked again, from the first check on."""
    FORCE_COMMIT = 7
    DROP = 8
    """An operator's decisions."""

    @property
    def title(self) -> str:
        """The input as a verb."""
        return _TITLES[self]


_TITLES: Final[Mapping[HalfInput, str]] = MappingProxyType(
    {
        HalfInput.COMMIT: "commit",
        HalfInput.ROLL_BACK: "roll back",
        HalfInput.UNKNOWN: "leave undecided",
        HalfInput.CHECK: "check",
        HalfInput.EXHAUST: "park",
        HalfInput.RESUME: "resume",
        HalfInput.FORCE_COMMIT: "commit",
        HalfInput.DROP: "drop",
    }
)

_S, _I = HalfState, HalfInput

TABLE: Final[Mapping[tuple[HalfState, HalfInput], HalfState]] = MappingProxyType(
    {
        (_S.PENDING, _I.COMMIT): _S.COMMITTED,
        (_S.PENDING, _I.ROLL_BACK): _S.ROLLED_BACK,
        (_S.PENDING, _I.UNKNOWN): _S.PENDING,
        (_S.PENDING, _I.CHECK): _S.PENDING,
        (_S.PENDING, _I.EXHAUST): _S.PARKED,
        (_S.PENDING, _I.FORCE_COMMIT): _S.COMMITTED,
        (_S.PENDING, _I.DROP): _S.ROLLED_BACK,
        (_S.PARKED, _I.UNKNOWN): _S.PARKED,
        (_S.PARKED, _I.RESUME): _S.PENDING,
        (_S.PARKED, _I.FORCE_COMMIT): _S.COMMITTED,
        (_S.PARKED, _I.DROP): _S.ROLLED_BACK,
        (_S.COMMITTED, _I.COMMIT): _S.COMMITTED,
        (_S.COMMITTED, _I.UNKNOWN): _S.COMMITTED,
        (_S.COMMITTED, _I.FORCE_COMMIT): _S.COMMITTED,
        (_S.ROLLED_BACK, _I.ROLL_BACK): _S.ROLLED_BACK,
        (_S.ROLLED_BACK, _I.UNKNOWN): _S.ROLLED_BACK,
        (_S.ROLLED_BACK, _I.DROP): _S.ROLLED_BACK,
    }
)
"""The state after an input. An input without an entry is refused."""


def after(state: HalfState, given: HalfInput, title: str) -> HalfState:
    """Return the state after an input. Raises ILLEGAL_STATE, with the `title` of the message, if it is refused."""
    found = TABLE.get((state, given))
    if found is None:
        hint = "; only an operator decides it (escrowmq half)" if state is HalfState.PARKED else ""
        hint = "; its outcome is final" if state.decided else hint
        raise BrokerError(Condition.ILLEGAL_STATE, f"cannot {given.title} {title}, which is {state.title}{hint}")
    return found
