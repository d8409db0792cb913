"""The queues of a source: which there are, what they have, and holding it for the group."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Final

from escrowmq.client.escrow import Escrow, HoldState, QueueState
from escrowmq.spark.errors import DataLossError, OptionError
from escrowmq.spark.options import Positions, SourceOptions
from escrowmq.spark.plan import STREAM

_log: Final = logging.getLogger(__name__)


class Queues:
    """What the driver asks the broker for. Nothing is remembered between calls but kinds and ends of holds.

    `streams`: the number of each stream that is only its own.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pattern = re.compile(options.pattern) if options.pattern else None
        self.kinds: dict[str, str] = {}
        self.streams: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    def names(self, broker: Escrow) -> list[str]:
        """Those that are subscribed to, sorted."""
        if self._pattern is None:
            return sorted(self._options.queues)
        found = sorted(name for name in broker.queues() if self._pattern.fullmatch(name))
        if not found:
            _log.warning("option subscribePattern: no queue has a name like %r", self._options.pattern)
        return found

    def states(self, broker: Escrow) -> dict[str, QueueState]:
        """What each of them has. Raises NotFound for one that was named and is not there."""
        names = self.names(broker)
        found = dict(zip(names, broker.describe(*names), strict=True))
        self.learn(found)
        return found

    def learn(self, found: dict[str, QueueState]) -> None:
        """Remember of what kind they are. Raises OptionError for a classic queue without a group."""
        for name, state in found.items():
            if state.kind != STREAM and not self._options.group:
                raise OptionError(
                    f"queue {name!r} is a classic queue: option group must name who reads it, the same whenever "
                    "the query is started again and another one for each query"
                )
            self.kinds[name] = state.kind
            if state.kind == STREAM:
                self.streams[name] = state.ident

    def kinds_of(self, broker: Escrow, names: Iterable[str]) -> dict[str, str]:
        """Of what kind queues are, which offsets speak of."""
        unknown = [name for name in names if name not in self.kinds]
        if unknown:
            self.learn(dict(zip(unknown, broker.describe(*unknown), strict=True)))
        return self.kinds

    def begin(self, broker: Escrow, name: str, state: QueueState, wanted: Positions) -> int:
        """Where to begin to read: of a classic queue, with what the group holds and has not settled."""
        if state.kind == STREAM:
            return position(state, name, wanted)
        if wanted == "latest":
            raise OptionError(
                f"queue {name!r} is a classic queue, which is read from its head: startingPosition earliest"
            )
        first = self.look(broker, name).first
        if isinstance(wanted, dict) and name in wanted and wanted[name] != first:
            raise OptionError(
                f"startingPosition: group {self._options.group!r} goes on with {first} in queue {name!r}, "
                f"not with {wanted[name]}"
            )
        return first

    def look(self, broker: Escrow, name: str) -> HoldState:
        """What the group holds."""
        state = broker.hold(name, self._options.group)
        self._ends[name] = state.end
        return state

    def end(self, broker: Escrow, name: str) -> int:
        """The number that the next message to be held gets."""
        return self._ends[name] if name in self._ends else self.look(broker, name).end

    def hold(self, broker: Escrow, name: str, until: int) -> int:
        """Hold messages up to number `until` - 1, or as many as there are; the end of what is held, `until` at most.

        What is held from before counts: so whoever asks again after a crash gets the same messages.
        """
        end = self.end(broker, name)
        while end < until:
            state = broker.hold(name, self._options.group, until=until)
            self._ends[name] = end = state.end
            if not state.added:
                break
        return min(end, until)

    def lost(self, name: str, first: int) -> None:
        """What is to be read next was never in this queue. Raises DataLossError, unless that is to be put up with."""
        text = (
            f"queue {name!r}: the query has read up to message {first - 1}, which the queue never had: "
            "it was deleted and made anew"
        )
        report_loss(self._options, text, "to go on with the new one")

    def gone(self, name: str, first: int, end: int) -> None:
        """There is no queue any more for a range that is planned. Raises as `lost`."""
        text = f"queue {name!r}: messages {first} to {end - 1} cannot be read: the queue was deleted"
        report_loss(self._options, text)


def report_loss(options: SourceOptions, text: str, onwards: str = "to go on without them") -> None:
    """Something that was planned to be read is gone. Raises DataLossError, unless that is to be put up with."""
    if options.fail_on_loss:
        raise DataLossError(f"{text}; {onwards}, set option failOnDataLoss to false")
    _log.warning("%s", text)


def position(state: QueueState, name: str, wanted: Positions) -> int:
    """A place in a stream. What lies outside of it is as near as can be."""
    if isinstance(wanted, dict):
        return wanted.get(name, state.first)
    return state.next if wanted == "latest" else state.first
