"""What an engine's log has besides entries: settings, a state for operators, and an end."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.log import ReplicatedLog


class EngineState(NamedTuple):
    """What an engine tells about its log."""

    engine: str
    """The name of the program."""
    address: str
    replicas: int
    """The copies that there should be."""
    in_sync: int
    """The copies that have everything that is acknowledged."""
    leader: str
    """The engine's node that leads the log, or nothing if there is none."""


class EngineLog(ReplicatedLog, Protocol):
    """A replicated log on an engine. Every method raises OSError if the engine does not answer in time."""

    def trim(self, before: int) -> None:
        """Delete all entries before a position. Afterwards, the log begins there, or where it began before."""
        ...

    def approach(self) -> None:
        """Append at the engine's node that leads the log from now on, wherever that is, if there is a choice.

        Appends take one hop less then. The node that leads calls this, and does not wait for it.
        """
        ...

    def check(self) -> list[WrongSetting]:
        """Return the settings that are wrong now."""
        ...

    def state(self) -> EngineState:
        """Ask the engine for the state of its copies."""
        ...

    def close(self) -> None:
        """Give up connections and threads. Calls that are under way fail."""
        ...
