"""Posts in an open transaction, of a link whose receiver settles second.

Their tags are unsettled as those of other posts are. A sender that resumes the link before the transaction has ended
therefore finds them, and does not post the same messages again (SET-7, SET-9). The record of the commit keeps the tags
that the sender has not settled until then. After a rollback, nothing of them is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.termini.arrivals import fingerprints_of
from escrowmq.core.termini.posting import ArrivalWork, lasts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from escrowmq.core.branches.branch import Publication, TransactionBranch
    from escrowmq.core.records.kinds import Kind
    from escrowmq.core.termini.terminus import Terminus


PIECE: Final = 500
"""Posts in one operation of a large commit."""


class PostOwner(Protocol):
    """A transaction that a client has opened."""

    @property
    def accepted(self) -> bytes:
        """The outcome of its posts in the encoding of the protocol (`Arrival.detail`)."""
        ...

    def give_up(self, text: str) -> None:
        """Roll back, unless it has ended."""
        ...


class EnlistedPosts:
    """Posts of one terminus in the transaction `owner`: their fingerprints, by tag."""

    __slots__ = ("_lasting", "_terminus", "owner", "tags")

    def __init__(self, terminus: Terminus, owner: PostOwner, *, lasting: bool) -> None:
        self._terminus = terminus
        self._lasting = lasting
        self.owner = owner
        self.tags: dict[bytes, bytes] = {}

    def takes(self, terminus: Terminus, *, lasting: bool) -> bool:
        """Return whether posts of `terminus` can be added that survive a restart if they are `lasting`."""
        return self._terminus is terminus and self._lasting is lasting

    def add(self, tags: Sequence[bytes], contents: Sequence[bytes]) -> None:
        """Add posts."""
        self.tags.update(zip(tags, fingerprints_of(contents), strict=True))
        self._terminus.arrivals.enlist(tags, self)

    def operations_in_pieces(self) -> Iterator[tuple[Kind, Sequence[bytes]]]:
        """Yield the operations to write, each for at most `PIECE` posts. Those that the sender settles meanwhile are
        among them; the caller has to begin again then.
        """
        tags, fingerprints = list(self.tags), list(self.tags.values())
        for at in range(0, len(tags), PIECE):
            part = slice(at, at + PIECE)
            yield from ArrivalWork(self._terminus, tags[part], fingerprints[part], lasting=self._lasting).operations()

    def _work(self) -> ArrivalWork:
        return ArrivalWork(self._terminus, list(self.tags), list(self.tags.values()), lasting=self._lasting)

    # -- core.branches.decision.Recorded

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        """Return the operations to write: none if the sender has settled all posts."""
        return self._work().operations() if self.tags else []

    @property
    def bytes(self) -> int:
        """An upper bound of its part of the record."""
        return self._work().bytes

    def apply(self, end: int, synced: int) -> None:
        """Keep the tags, after the record is written up to `end`."""
        tags, self.tags = self.tags, {}
        self._terminus.arrivals.withdraw(tags)
        self._terminus.arrivals.accept_all(tags, end, synced)
        if self._terminus.termini is not None:
            self._terminus.termini.durable.unsettled(self._terminus)

    def leave(self) -> None:
        """Forget the posts, because the transaction has ended."""
        tags, self.tags = self.tags, {}
        self._terminus.arrivals.withdraw(tags)
        if len(tags) > PIECE:
            self._terminus.free_later(list(tags.values()))
            self._terminus.free_later(list(tags))


def enlist(
    terminus: Terminus, branch: TransactionBranch, owner: PostOwner, publication: Publication, tags: Sequence[bytes]
) -> None:
    """Add the tags of messages that `owner` publishes in its branch."""
    lasting = lasts(terminus, publication.envelope, publication.queues)
    last = branch.arrivals[-1] if branch.arrivals else None
    if last is None or not last.takes(terminus, lasting=lasting):
        last = EnlistedPosts(terminus, owner, lasting=lasting)
        branch.arrivals.append(last)
    last.add(tags, publication.contents)
