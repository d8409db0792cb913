"""Marks: the facts that a queue keeps about a message that returned to it. Most messages have none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NO_ANNOTATIONS: Final[Mapping[str, bytes]] = MappingProxyType({})


class Marks(NamedTuple):
    """The marks of one message.

    `failures` counts failed deliveries; a released delivery is not a failed one. `annotations` were added to the
    message by clients, with values in the encoding of their protocol. `excluded` names the links that must not get the
    message again.
    """

    failures: int = 0
    annotations: Mapping[str, bytes] = NO_ANNOTATIONS
    excluded: frozenset[str] = frozenset()


class Modification(NamedTuple):
    """A `modified` disposition of AMQP 1.0 (section 3.4.5 of the part on messaging).

    `annotations` replace existing ones of the same name. `excluded` is the link that must not get the message again, if
    any. With `rejected`, the message does not return to its queue, but is dead-lettered.
    """

    failed: bool = False
    annotations: Mapping[str, bytes] = NO_ANNOTATIONS
    excluded: str = ""
    rejected: bool = False

    def applied(self, marks: Marks) -> Marks:
        """Return the marks that result from this modification of `marks`."""
        annotations = {**marks.annotations, **self.annotations} if self.annotations else marks.annotations
        excluded = marks.excluded | {self.excluded} if self.excluded else marks.excluded
        return Marks(marks.failures + self.failed, annotations, excluded)


class MarkTable(dict[int, Marks]):
    """The marks of a queue's messages, by position.

    `excluding` tells whether some links must not get some of the messages again. It stays true until no message has
    marks.
    """

    __slots__ = ("excluding",)

    def __init__(self, marks: Mapping[int, Marks] = MappingProxyType({})) -> None:
        super().__init__(marks)
        self.excluding = any(mark.excluded for mark in marks.values())

    def __setitem__(self, position: int, marks: Marks) -> None:
        super().__setitem__(position, marks)
        if marks.excluded:
            self.excluding = True

    def discard(self, positions: Iterable[int]) -> None:
        """Forget the marks of messages that have any."""
        for position in positions:
            self.pop(position, None)
        if not self:
            self.excluding = False

    def excludes(self, position: int, link: str) -> bool:
        """Return whether `link` must not get the message at `position` again."""
        marks = self.get(position)
        return marks is not None and link in marks.excluded
