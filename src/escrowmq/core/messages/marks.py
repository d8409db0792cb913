"""Marks: what has happened to a message on its queue beside being delivered. Most messages have none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NO_ANNOTATIONS: Final[Mapping[str, bytes]] = MappingProxyType({})


class Marks(NamedTuple):
    """The marks of one message.

    `failures` counts the deliveries that have failed; one that was released has been delivered and has not failed.
    `annotations` were added to the message by clients; the values are in the encoding of their protocol. `excluded`
    names the links that must not get the message again.
    """

    failures: int = 0
    annotations: Mapping[str, bytes] = NO_ANNOTATIONS
    excluded: frozenset[str] = frozenset()


class Modification(NamedTuple):
    """What the disposition `modified` of AMQP 1.0 asks for (section 3.4.5 of its part on messaging).

    `annotations` replace those of the same name. `excluded` is the link that must not get the message again, if any.
    """

    failed: bool = False
    annotations: Mapping[str, bytes] = NO_ANNOTATIONS
    excluded: str = ""

    def applied(self, marks: Marks) -> Marks:
        """`marks` as they are afterwards."""
        annotations = {**marks.annotations, **self.annotations} if self.annotations else marks.annotations
        excluded = marks.excluded | {self.excluded} if self.excluded else marks.excluded
        return Marks(marks.failures + self.failed, annotations, excluded)
