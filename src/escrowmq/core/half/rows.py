"""The half messages of a virtual host, in columns: a million of them must fit into memory.

A row belongs to a number. Numbers grow, and rows leave in almost any order, so 256 consecutive numbers share a chunk,
which is freed with its last row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.half.state import HalfState

if TYPE_CHECKING:
    from escrowmq.core.records.half import HalfRow

_BITS: Final = 8
SIZE: Final = 1 << _BITS
"""Number of rows in a chunk."""
_MASK: Final = SIZE - 1
_STATES: Final = {int(state): state for state in HalfState}


class Chunk:
    """The rows of `SIZE` consecutive numbers, the first of which is `base`.

    `due` is the time of the next check, or that of the decision. A snapshot shares the columns: they are copied before
    the next change.
    """

    __slots__ = ("_shared", "base", "born", "checks", "due", "ids", "origins", "rows", "states")

    def __init__(self, base: int) -> None:
        self.base = base
        self.rows = 0
        self._shared = False
        self.ids: list[str] = [""] * SIZE
        self.born = array("Q", bytes(8 * SIZE))
        self.due = array("Q", bytes(8 * SIZE))
        self.origins = array("I", bytes(4 * SIZE))
        self.checks = array("H", bytes(2 * SIZE))
        self.states = bytearray(SIZE)

    def own(self) -> None:
        """Copy the columns if a snapshot has them, because they change now."""
        if self._shared:
            self._shared = False
            self.ids = self.ids.copy()
            self.born, self.due = self.born[:], self.due[:]
            self.origins, self.checks = self.origins[:], self.checks[:]
            self.states = self.states[:]

    def share(self) -> Chunk:
        """Return a copy that has the same columns."""
        self._shared = True
        other = Chunk.__new__(Chunk)
        other.base, other.rows, other._shared = self.base, self.rows, True
        other.ids, other.born, other.due = self.ids, self.born, self.due
        other.origins, other.checks, other.states = self.origins, self.checks, self.states
        return other


class Rows:
    """Rows by number."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: dict[int, Chunk] = {}

    def add(self, number: int, ident: str, born: int, due: int, origin: int) -> None:
        """Add a row. Its state is PENDING."""
        chunk = self._chunks.get(number >> _BITS)
        if chunk is None:
            chunk = self._chunks[number >> _BITS] = Chunk(number & ~_MASK)
        else:
            chunk.own()
        i = number & _MASK
        chunk.ids[i] = ident
        chunk.born[i] = born
        chunk.due[i] = due
        chunk.origins[i] = origin
        chunk.checks[i] = 0
        chunk.states[i] = 1
        chunk.rows += 1

    def restore(self, rows: Iterable[HalfRow]) -> None:
        """Add rows of a snapshot, which are in order of their numbers, more or less."""
        key, chunk = -1, Chunk(0)
        for number, ident, born, due, origin, checks, state in rows:
            if number >> _BITS != key:
                key = number >> _BITS
                chunk = self._chunks.get(key) or Chunk(number & ~_MASK)
                self._chunks[key] = chunk
            i = number & _MASK
            chunk.ids[i] = ident
            chunk.born[i] = born
            chunk.due[i] = due
            chunk.origins[i] = origin
            chunk.checks[i] = checks
            chunk.states[i] = state
            chunk.rows += 1

    def state(self, number: int) -> HalfState | None:
        """Return the state of a half message; None if it is not known."""
        chunk = self._chunks.get(number >> _BITS)
        return None if chunk is None else _STATES.get(chunk.states[number & _MASK])

    def due(self, number: int) -> int:
        """Return the time of the next check, or of the decision."""
        return self._chunks[number >> _BITS].due[number & _MASK]

    def born(self, number: int) -> int:
        """Return the time of arrival."""
        return self._chunks[number >> _BITS].born[number & _MASK]

    def checks(self, number: int) -> int:
        """Return the number of checks that were made."""
        return self._chunks[number >> _BITS].checks[number & _MASK]

    def ident(self, number: int) -> str:
        """Return the message id."""
        return self._chunks[number >> _BITS].ids[number & _MASK]

    def origin(self, number: int) -> int:
        """Return the number of the origin."""
        return self._chunks[number >> _BITS].origins[number & _MASK]

    def set(self, number: int, state: HalfState, due: int, checks: int) -> None:
        """Change a row."""
        chunk = self._chunks[number >> _BITS]
        chunk.own()
        i = number & _MASK
        chunk.states[i] = state
        chunk.due[i] = due
        chunk.checks[i] = checks

    def put(self, number: int, due: int) -> None:
        """Change the time of the next check."""
        chunk = self._chunks[number >> _BITS]
        chunk.own()
        chunk.due[number & _MASK] = due

    def remove(self, number: int) -> None:
        """Remove a row."""
        chunk = self._chunks[number >> _BITS]
        chunk.own()
        chunk.rows -= 1
        if chunk.rows:
            chunk.states[number & _MASK] = 0
            chunk.ids[number & _MASK] = ""
        else:
            del self._chunks[number >> _BITS]

    def shared(self) -> list[Chunk]:
        """Return copies of all chunks that share their columns, for a snapshot."""
        return [chunk.share() for chunk in self._chunks.values()]

    def in_states(self, *states: HalfState) -> list[int]:
        """Return the numbers of the half messages in these states, in order of their due times."""
        wanted = frozenset(states)
        found: list[int] = []
        for chunk in self._chunks.values():
            found += [chunk.base + i for i, state in enumerate(chunk.states) if state in wanted]
        chunks = self._chunks
        found.sort(key=lambda number: chunks[number >> _BITS].due[number & _MASK])
        return found

    def first(self, state: HalfState) -> int:
        """Return the smallest number of a half message in this state; 0 if there is none."""
        for key in sorted(self._chunks):
            chunk = self._chunks[key]
            i = chunk.states.find(state)
            if i >= 0:
                return chunk.base + i
        return 0

    def numbers(self, above: int = 0) -> Iterator[int]:
        """Yield the numbers greater than `above`, in order. Rows may be changed and removed meanwhile."""
        for key in sorted(key for key in self._chunks if key >= above >> _BITS):
            chunk = self._chunks.get(key)
            if chunk is not None:
                for i in range(SIZE):
                    if chunk.states[i] and chunk.base + i > above:
                        yield chunk.base + i
