"""The ledger of a virtual host's half messages: their rows, and their numbers by topic and message id (HALF-11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from escrowmq.core.half.origin import HalfOrigin, Origins
from escrowmq.core.half.rows import Rows
from escrowmq.core.half.state import HalfState

if TYPE_CHECKING:
    from escrowmq.core.records.half import HalfRow


class HalfLedger:
    """Half messages that are undecided, and those whose outcome is still known.

    `undecided` counts those of each user, `states` those of each topic in each state.
    """

    __slots__ = ("_ids", "origins", "rows", "states", "undecided")

    def __init__(self) -> None:
        self.rows = Rows()
        self.origins = Origins()
        self.undecided: Counter[str] = Counter()
        self.states: dict[str, Counter[HalfState]] = {}
        self._ids: dict[str, dict[str, int]] = {}

    def number(self, topic: str, ident: str) -> int:
        """Return the number of the half message with this id; 0 if none is known."""
        ids = self._ids.get(topic)
        return 0 if ids is None else ids.get(ident, 0)

    def numbers(self, ident: str) -> list[int]:
        """Return the numbers of the half messages with this id, at most one of each topic."""
        return [ids[ident] for ids in self._ids.values() if ident in ids]

    def add(self, number: int, ident: str, born: int, due: int, origin: HalfOrigin) -> None:
        """Add a pending half message."""
        self.rows.add(number, ident, born, due, origin.number)
        self._topic(origin)[ident] = number
        origin.count += 1
        self.states[origin.key.topic][HalfState.PENDING] += 1
        self.undecided[origin.key.user] += 1

    def _topic(self, origin: HalfOrigin) -> dict[str, int]:
        """Return the numbers of the origin's topic, by message id."""
        topic = origin.key.topic
        ids = self._ids.get(topic)
        if ids is None:
            ids = self._ids[topic] = {}
            self.states[topic] = Counter()
        return ids

    def _count(self, origin: HalfOrigin, state: HalfState, more: int) -> None:
        origin.count += more
        self.states[origin.key.topic][state] += more
        if not state.decided:
            self.undecided[origin.key.user] += more

    def restore(self, rows: Sequence[HalfRow]) -> None:
        """Add half messages of a snapshot. Their origins are known."""
        self.rows.restore(rows)
        topics: dict[int, dict[str, int]] = {}
        counts: Counter[tuple[int, int]] = Counter()
        for number, ident, _, _, origin, _, state in rows:
            ids = topics.get(origin)
            if ids is None:
                ids = topics[origin] = self._topic(self.origins[origin])
            ids[ident] = number
            counts[origin, state] += 1
        for (origin, state), more in counts.items():
            self._count(self.origins[origin], HalfState(state), more)

    def set(self, number: int, state: HalfState, due: int, checks: int) -> None:
        """Change a half message."""
        before = self.rows.state(number)
        assert before is not None
        self.rows.set(number, state, due, checks)
        if before is state:
            return
        key = self.origins[self.rows.origin(number)].key
        states = self.states[key.topic]
        states[before] -= 1
        states[state] += 1
        if state.decided and not before.decided:
            self.undecided[key.user] -= 1
            if not self.undecided[key.user]:
                del self.undecided[key.user]

    def forget(self, number: int) -> None:
        """Forget a decided half message."""
        state = self.rows.state(number)
        assert state is not None
        assert state.decided
        origin = self.origins[self.rows.origin(number)]
        topic, ident = origin.key.topic, self.rows.ident(number)
        ids = self._ids[topic]
        if ids.get(ident) == number:
            del ids[ident]
        if not ids:
            del self._ids[topic], self.states[topic]
        else:
            self.states[topic][state] -= 1
        self.origins.let_go(origin)
        self.rows.remove(number)

    def tally(self, state: HalfState) -> tuple[int, int]:
        """Return the number of half messages in a state, and the time at which the oldest of them arrived; 0 if there
        is none.
        """
        first = self.rows.first(state)
        return sum([states[state] for states in self.states.values()]), self.rows.born(first) if first else 0

    def transaction_id(self, vhost: str, number: int) -> str:
        """Return the transaction id of a known half message: its number, and a check sum of its other facts."""
        rows = self.rows
        topic = self.origins[rows.origin(number)].key.topic
        return transaction_id_of(vhost, topic, rows.ident(number), rows.born(number), number)


def transaction_id_of(vhost: str, topic: str, ident: str, born: int, number: int) -> str:
    """Return the transaction id of a half message with the message id `ident`."""
    facts = f"{vhost}\0{topic}\0{ident}\0{born}"
    return f"{number:016X}{crc32(facts.encode('utf-8', 'surrogatepass')):08X}"
