"""The publishes of a channel that the broker has confirmed."""

from __future__ import annotations

from escrowmq.perf.errors import PerfError


class ConfirmTracker:
    """Counts confirms, single or multiple, in any order."""

    __slots__ = ("_singles", "floor")

    def __init__(self) -> None:
        self.floor = 0
        """Every tag up to this one is confirmed."""
        self._singles: set[int] = set()

    @property
    def confirmed(self) -> int:
        """How many publishes are confirmed."""
        return self.floor + len(self._singles)

    def confirm(self, tag: int, multiple: bool, published: int) -> int:
        """Take one basic.ack or basic.nack. Returns the number of publishes that it settled.

        Raises PerfError for a tag above `published`, the highest one, or a tag that is confirmed already.
        """
        if multiple and tag == 0:
            tag = published
        if tag > published or tag < 1:
            raise PerfError(f"the broker confirmed publish {tag}, but only {published} were sent")
        floor = self.floor
        if tag <= floor or (not multiple and tag in self._singles):
            raise PerfError(f"the broker confirmed publish {tag} twice")
        if multiple:
            before = self.confirmed
            self.floor = tag
            if self._singles:
                self._singles = {single for single in self._singles if single > tag}
                self._advance()
            return self.confirmed - before
        if tag == floor + 1:
            self.floor = tag
            if self._singles:
                self._advance()
        else:
            self._singles.add(tag)
        return 1

    def _advance(self) -> None:
        while self.floor + 1 in self._singles:
            self.floor += 1
            self._singles.discard(self.floor)
