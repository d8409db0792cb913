"""Find a source's queues and the streams of its topics, inspect them, and reserve their messages for the group."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Final

from escrowmq.client import AccessRefused, NotFound
from escrowmq.client.escrow import Escrow, HoldState, QueueState
from escrowmq.spark.errors import DataLossError, OptionError
from escrowmq.spark.options import Positions, SourceOptions
from escrowmq.spark.plan import STREAM

_log: Final = logging.getLogger(__name__)


class Queues:
    """The driver's requests about queues.

    Only kinds of queues, IDs of streams and ends of reservations are cached between calls: `kinds` by queue, and
    `streams`, the unique ID of each stream.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pattern = re.compile(options.pattern) if options.pattern else None
        self.kinds: dict[str, str] = {}
        self.streams: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._topics: set[str] = set()

    def names(self, broker: Escrow) -> list[str]:
        """Return the names of the subscribed queues, sorted. A topic is replaced by the streams that it has now."""
        if self._pattern is None:
            return sorted({name for given in self._options.queues for name in self._resolved(broker, given)})
        found = sorted(name for name in broker.queues() if self._pattern.fullmatch(name))
        if not found:
            _log.warning("option subscribePattern: no queue matches %r", self._options.pattern)
        return found

    def _resolved(self, broker: Escrow, given: str) -> list[str]:
        """Return the queue that a name of option subscribe means, or else the streams of the topic that it means.

        The streams of a topic are requested each time, because it may have grown.
        """
        if given not in self.kinds and given not in self._topics:
            try:
                self.learn({given: broker.describe(given)[0]})
            except (NotFound, AccessRefused):
                self._topics.add(given)
        if given in self.kinds:
            return [given]
        return broker.streams(given) or [given]  # if there is neither, the error of the queue is reported

    def states(self, broker: Escrow) -> dict[str, QueueState]:
        """Return the state of each subscribed queue.

        Raises:
            NotFound: option subscribe has the name of neither a queue nor a topic.
            OptionError: a classic queue is read without a group, or a position is given for a stream that its topic
                does not have.
        """
        names = self.names(broker)
        found = dict(zip(names, broker.describe(*names), strict=True))
        self.learn(found)
        if self._pattern is None:
            self._check_positions(found)
        return found

    def _check_positions(self, found: dict[str, QueueState]) -> None:
        options = self._options
        for option, positions in (("startingPosition", options.starting), ("endingPosition", options.ending)):
            others = sorted(positions.keys() - found.keys()) if isinstance(positions, dict) else []
            if others:
                raise OptionError(
                    f"option {option} has a position for {others[0]!r}, which is not one of the queues read: "
                    f"{', '.join(found)}"
                )

    def learn(self, found: dict[str, QueueState]) -> None:
        """Cache the kinds of queues and the IDs of streams.

        Raises:
            OptionError: a classic queue is read without a group.
        """
        for name, state in found.items():
            if state.kind != STREAM and not self._options.group:
                raise OptionError(
                    f"queue {name!r} is a classic queue, which can only be read with option group; choose a name that "
                    "is unique to the query and stays the same when the query is restarted"
                )
            self.kinds[name] = state.kind
            if state.kind == STREAM:
                self.streams[name] = state.ident

    def kinds_of(self, broker: Escrow, names: Iterable[str]) -> dict[str, str]:
        """Return the kinds of all known queues, among them `names`, which are taken from offsets."""
        unknown = [name for name in names if name not in self.kinds]
        if unknown:
            self.learn(dict(zip(unknown, broker.describe(*unknown), strict=True)))
        return self.kinds

    def begin(self, broker: Escrow, name: str, state: QueueState, wanted: Positions) -> int:
        """Return the number at which reading begins. In a classic queue that is the group's first unsettled message.

        Raises:
            OptionError: `wanted` is a position at which a classic queue cannot be read.
        """
        if state.kind == STREAM:
            return position(state, name, wanted)
        if wanted == "latest":
            raise OptionError(
                f"queue {name!r} is a classic queue, which is always read from its head; set startingPosition to "
                "earliest"
            )
        first = self.look(broker, name).first
        if isinstance(wanted, dict) and name in wanted and wanted[name] != first:
            raise OptionError(
                f"option startingPosition: group {self._options.group!r} continues at {first} in queue {name!r}, "
                f"not at {wanted[name]}"
            )
        return first

    def look(self, broker: Escrow, name: str) -> HoldState:
        """Return the state of the group's reservation on a queue."""
        state = broker.hold(name, self._options.group)
        self._ends[name] = state.end
        return state

    def end(self, broker: Escrow, name: str) -> int:
        """Return the number that the next reserved message will get."""
        return self._ends[name] if name in self._ends else self.look(broker, name).end

    def hold(self, broker: Escrow, name: str, until: int) -> int:
        """Reserve messages up to number `until` - 1, or as many as there are.

        Messages that are reserved already count. A repeated request, for example after a crash, therefore gets the same
        messages. Returns the end of the reservation, at most `until`.
        """
        end = self.end(broker, name)
        while end < until:
            state = broker.hold(name, self._options.group, until=until)
            self._ends[name] = end = state.end
            if not state.added:
                break
        return min(end, until)

    def lost(self, name: str, first: int) -> None:
        """Report that the query has read further than this queue goes: a queue of the same name has replaced it.

        Raises:
            DataLossError: option failOnDataLoss is true.
        """
        text = (
            f"queue {name!r}: the query has read up to message {first - 1}, which this queue never had: "
            "the queue was deleted and declared again"
        )
        report_loss(self._options, text, "to continue with the new queue")

    def gone(self, name: str, first: int, end: int) -> None:
        """Report that the queue of a planned range has been deleted.

        Raises:
            DataLossError: option failOnDataLoss is true.
        """
        text = f"queue {name!r}: messages {first} to {end - 1} cannot be read: the queue was deleted"
        report_loss(self._options, text)


def report_loss(options: SourceOptions, text: str, onwards: str = "to continue without them") -> None:
    """Report that planned messages no longer exist: as an error, or as a warning in the log if the options permit it.

    Args:
        options: the options of the source.
        text: the missing messages, and the reason.
        onwards: what the query does if option failOnDataLoss is set to false.

    Raises:
        DataLossError: option failOnDataLoss is true.
    """
    if options.fail_on_loss:
        raise DataLossError(f"{text}; {onwards}, set option failOnDataLoss to false")
    _log.warning("%s", text)


def position(state: QueueState, name: str, wanted: Positions) -> int:
    """Return the position in the stream `name` that `wanted` refers to. `earliest` is the default."""
    if isinstance(wanted, dict):
        return wanted.get(name, state.first)
    return state.next if wanted == "latest" else state.first
