"""What has changed in a list since a client last asked for it. The HTTP process asks for this, and keeps the rows.

For each object that is listed, the broker keeps the part of its row that may change, and the number of the look that
last found a change in it. A look reads the objects that have been noted as changed (`core.watch`), and compares these
parts. A client names the last look whose outcome it has, and gets what later ones have found.

As a safety net, each look also reads a small share of all objects, so that a change which was not noted appears late,
but appears.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from escrowmq.admin.operation import Listing, Row
from escrowmq.admin.pieces import Pieces

MOST_GONE: Final = 10_000
"""Objects that are gone and still remembered. A client that has not asked for longer gets the whole list again."""
MOST_NOTED: Final = 20_000
"""Noted changes above which a look reads all objects instead."""
ROUND: Final = 100
"""Looks in which every object is read once, whether it has been noted or not."""
_AT_ONCE: Final = 100  # objects in one step of work that takes a tenth of a microsecond for each
_UNKNOWN: Final = ()

Variable: TypeAlias = tuple[Any, ...]
"""The part of a row that may change. Equal parts make equal rows."""


class Listed(Protocol):
    """An object that is listed."""

    @property
    def ident(self) -> int:
        """A number that no other object of the list ever has."""
        ...


T = TypeVar("T", bound=Listed)
Reader: TypeAlias = Callable[[Sequence[T]], Sequence[Variable | None]]
"""Returns the variable parts of the rows of some objects, and None for those that are gone."""


class ListSource(Protocol[T]):
    """The objects of a list. `step` of them are read in one step of work."""

    step: int

    def present(self) -> Sequence[T]:
        """Return the objects."""
        ...

    def fixed(self, listed: T) -> Row:
        """Return the part of an object's row that never changes."""
        ...

    def reading(self) -> Generator[None, None, Reader[T]]:
        """Prepare a look, in steps, and return what reads the objects."""
        ...

    def changed(self) -> Sequence[T] | None:
        """Return the objects that may have changed since they were read, with those that are new or gone; None if that
        is not known. Called after the end of `reading`.
        """
        ...


class _ListedRow:
    """The row of an object, the look that has found the object, and the last one that has found a change in it."""

    __slots__ = ("changed", "fixed", "found", "ident", "variable")

    def __init__(self, ident: int, fixed: Row, look: int) -> None:
        self.ident = ident
        self.fixed = fixed
        self.variable: Variable = ()
        self.found = self.changed = look


class ListChanges(Generic[T]):
    """Finds the changes of one list. The numbers of looks are those of one run of the broker."""

    def __init__(
        self, source: ListSource[T], pieces: Pieces, most_gone: int = MOST_GONE, round_looks: int = ROUND
    ) -> None:
        self._source = source
        self._pieces = pieces
        self._run = secrets.token_hex(8)
        self._look = 0
        self._looking = asyncio.Lock()
        self._complete = False  # an earlier look has read everything, and later ones what has changed since
        self._round: list[T] = []  # objects to be read in this round of the safety net
        self._round_looks = round_looks
        self._share = 0
        self._latest: dict[int, Variable] = {}  # for the comparison, which should touch little memory
        self._known: dict[int, _ListedRow] = {}  # those with the latest changes are last
        self._gone: deque[tuple[int, int]] = deque()  # looks that missed an object, with the number of the object
        self._most_gone = most_gone
        self._forgotten = 0  # the last look of which not all missing objects are remembered

    async def since(self, run: str = "", look: int = 0) -> Listing:
        """Look now, and return what has changed since the look `look` of a run; the whole list if that is not known.

        The first row has `run` and `look` for the next time, and `whole`, which says that earlier rows are void. Each
        other one has the numbers of some objects that are `gone`, or `ident`, the number of an object, with `variable`
        and, unless the client has it, `fixed`, the parts of its row.
        """
        async with self._looking:
            whole = run != self._run or not self._forgotten <= look <= self._look
            after = 0 if whole else look
            self._look += 1
            changed, gone = await self._pieces.result(self._found(after))
            head = {"run": self._run, "look": self._look, "whole": whole}
        return Listing(self._pieces, _rows(head, after, [] if whole else gone, changed))

    def _found(self, after: int) -> Generator[None, None, tuple[list[_ListedRow], list[int]]]:
        """Look, and return what has changed and what is gone since the look `after`."""
        complete, self._complete = self._complete, False
        yield from self._looked(complete=complete)
        self._complete = True
        changed = yield from self._changed_after(after)
        gone = yield from self._gone_after(after)
        return changed, gone

    def _looked(self, *, complete: bool) -> Generator[None, None, None]:
        """Read what may have changed: everything unless the last look was `complete`."""
        read = yield from self._source.reading()
        changed = self._source.changed()
        if not complete or changed is None:
            present = self._source.present()
            yield from self._compare(present, read)
            yield from self._forget_others(present)
        else:
            yield from self._compare(changed, read)
            yield from self._compare_share(read)

    def _compare(self, some: Sequence[T], read: Reader[T]) -> Generator[None, None, None]:
        latest, step = self._latest, self._source.step
        for begin in range(0, len(some), step):
            portion = some[begin : begin + step]
            for listed, variable in zip(portion, read(portion), strict=True):
                if latest.get(listed.ident, _UNKNOWN) != variable:
                    if variable is None:
                        self._forget(listed.ident)
                    else:
                        self._note(listed, variable)
            yield

    def _compare_share(self, read: Reader[T]) -> Generator[None, None, None]:
        """Read the next share of all objects."""
        if not self._round:
            self._round = list(self._source.present())
            self._share = -(-len(self._round) // self._round_looks)
            yield
            if len(self._round) != len(self._latest):
                yield from self._forget_others(self._round)
        share = self._round[len(self._round) - self._share :]
        del self._round[len(self._round) - self._share :]
        yield from self._compare(share, read)

    def _note(self, listed: T, variable: Variable) -> None:
        ident = listed.ident
        known = self._known.pop(ident, None) or _ListedRow(ident, self._source.fixed(listed), self._look)
        known.variable, known.changed = variable, self._look
        self._latest[ident] = variable
        self._known[ident] = known

    def _forget_others(self, present: Sequence[T]) -> Generator[None, None, None]:
        if len(present) == len(self._latest):
            return
        idents: set[int] = set()
        for begin in range(0, len(present), _AT_ONCE):
            idents.update([listed.ident for listed in present[begin : begin + _AT_ONCE]])
            yield
        for number, ident in enumerate(list(self._known)):
            if ident not in idents:
                self._forget(ident)
            if number % _AT_ONCE == 0:
                yield

    def _forget(self, ident: int) -> None:
        if self._known.pop(ident, None) is None:
            return
        del self._latest[ident]
        self._gone.append((self._look, ident))
        if len(self._gone) > self._most_gone:
            self._forgotten, _ = self._gone.popleft()

    def _changed_after(self, look: int) -> Generator[None, None, list[_ListedRow]]:
        changed: list[_ListedRow] = []
        for known in reversed(self._known.values()):
            if known.changed <= look:
                break
            changed.append(known)
            if len(changed) % _AT_ONCE == 0:
                yield
        return changed

    def _gone_after(self, look: int) -> Generator[None, None, list[int]]:
        gone: list[int] = []
        for missed, ident in reversed(self._gone):
            if missed <= look:
                break
            gone.append(ident)
            if len(gone) % _AT_ONCE == 0:
                yield
        return gone


def _rows(head: Row, after: int, gone: list[int], changed: list[_ListedRow]) -> Iterator[Row]:
    yield head
    for begin in range(0, len(gone), _AT_ONCE):
        yield {"gone": gone[begin : begin + _AT_ONCE]}
    for known in changed:
        row: Row = {"ident": known.ident, "variable": known.variable}
        if known.found > after:
            row["fixed"] = known.fixed
        yield row
