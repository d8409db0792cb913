"""The unsettled deliveries of an incoming terminus: the messages of a producer, by delivery tag (SET-8, SET-9).

A tag is kept from the moment at which its outcome is known until the sender has settled it. Then the sender may use it
again, and the broker cannot know whether a settlement was lost with a connection or in a crash. A sender that resumes
without knowing an outcome may therefore speak of a new message. Unless its outcome cannot have left the broker, such a
tag is in doubt: the sender is asked to send the whole message, and fingerprints tell whether it is the old one. Only a
new message that equals the old one byte by byte cannot be told from it; an id in each message prevents that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.termini import FINGERPRINT_BYTES

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holding
    from escrowmq.core.termini.enlisted_posts import EnlistedPosts, PostOwner


class Arrival(NamedTuple):
    """A message that arrived, and is not settled by its sender.

    `detail` is the outcome in the encoding of the protocol, if there is more to say, such as the reason of a rejection.
    """

    outcome: Disposition
    fingerprint: bytes
    detail: bytes = b""


class AcceptedCopy(NamedTuple):
    """A copy of the accepted messages: all tags, the fingerprints of the first ones, and the contents of the others."""

    tags: list[bytes]
    digested: list[bytes]
    contents: list[bytes]

    def fingerprints(self) -> list[bytes]:
        """Return the fingerprints of all. This may be called on any thread."""
        return self.digested + fingerprints_of(self.contents)


class Partial(NamedTuple):
    """A delivery whose transfer was interrupted: its tag and the part of its payload that arrived, which `holding`
    counts for its user and virtual host.
    """

    tag: bytes
    payload: bytes
    holding: Holding | None = None

    def close(self) -> None:
        """Count nothing any more."""
        if self.holding is not None:
            self.holding.close()


def fingerprint_of(content: bytes) -> bytes:
    """Return the fingerprint of a message's content, 64 bits."""
    return blake2b(content, digest_size=FINGERPRINT_BYTES).digest()


def fingerprints_of(contents: Sequence[bytes]) -> list[bytes]:
    """Do `fingerprint_of` for each of `contents`, in fewer steps."""
    return [blake2b(content, digest_size=FINGERPRINT_BYTES).digest() for content in contents]


class Arrivals:
    """Tags, outcomes and fingerprints of unsettled messages. Accepted ones, which are most, cost the least memory. As
    long as they are fresh, their contents are kept in place of their fingerprints.
    """

    __slots__ = ("_accepted", "_certain", "_enlisted", "_fresh", "_in_doubt", "_others", "_unsynced", "partial")

    def __init__(self) -> None:
        self._accepted: dict[bytes, bytes] = {}
        self._fresh: dict[bytes, bytes] = {}  # contents of further accepted messages
        self._others: dict[bytes, Arrival] = {}
        self._enlisted: dict[bytes, EnlistedPosts] = {}  # posts of transactions that are open
        self._unsynced: deque[tuple[int, Sequence[bytes]]] = deque()  # with the LSN that their outcomes wait for
        self._certain: frozenset[bytes] = frozenset()  # of a suspended terminus: outcomes that never left the broker
        self._in_doubt: set[bytes] = set()  # tags that the sender was told to send again
        self.partial: Partial | None = None

    # -- reading

    @property
    def count(self) -> int:
        """The number of unsettled deliveries."""
        return len(self._accepted) + len(self._fresh) + len(self._others)

    @property
    def empty(self) -> bool:
        """Whether there are no accepted messages, apart from those of open transactions."""
        return not self._accepted and not self._fresh

    def __contains__(self, tag: bytes) -> bool:
        return tag in self._accepted or tag in self._fresh or tag in self._others or tag in self._enlisted

    def get(self, tag: bytes) -> Arrival | None:
        """Return the message with this tag, or None if there is none."""
        fingerprint = self._accepted.get(tag)
        if fingerprint is not None:
            return Arrival(Disposition.ACCEPTED, fingerprint)
        content = self._fresh.get(tag)
        if content is not None:
            return Arrival(Disposition.ACCEPTED, fingerprint_of(content))
        posts = self._enlisted.get(tag)
        if posts is not None:
            return Arrival(Disposition.ACCEPTED, posts.tags[tag], posts.owner.accepted)
        return self._others.get(tag)

    def owner(self, tag: bytes) -> PostOwner | None:
        """Return the open transaction in which the message with this tag was posted."""
        posts = self._enlisted.get(tag)
        return None if posts is None else posts.owner

    def owners(self) -> list[PostOwner]:
        """Return the open transactions that have posts of this terminus."""
        return list({id(posts.owner): posts.owner for posts in self._enlisted.values()}.values())

    def items(self) -> Iterator[tuple[bytes, Arrival]]:
        """Yield all tags with their messages, except those of open transactions."""
        for tag, fingerprint in self._accepted.items():
            yield tag, Arrival(Disposition.ACCEPTED, fingerprint)
        for tag, content in self._fresh.items():
            yield tag, Arrival(Disposition.ACCEPTED, fingerprint_of(content))
        yield from self._others.items()

    def in_doubt(self, tag: bytes) -> bool:
        """Return whether the sender was told to send the message with this tag again."""
        return tag in self._in_doubt

    def accepted(self) -> AcceptedCopy:
        """Return a copy of all accepted messages, for a snapshot."""
        tags = [*self._accepted, *self._fresh]
        return AcceptedCopy(tags, list(self._accepted.values()), list(self._fresh.values()))

    # -- changing

    def check_new(self, tags: Sequence[bytes]) -> None:
        """Raises ILLEGAL_STATE if a tag belongs to an unsettled delivery."""
        taken = len(set(tags)) < len(tags)
        for others in (self._accepted, self._fresh, self._others, self._enlisted):
            taken = taken or bool(others and not others.keys().isdisjoint(tags))
        if taken:
            raise BrokerError(
                Condition.ILLEGAL_STATE, "delivery tag belongs to an unsettled delivery of this link; settle that first"
            )

    def accept_fresh(self, tags: Sequence[bytes], contents: Sequence[bytes], lsn: int = 0, synced: int = 0) -> None:
        """Add accepted messages with these contents. Their outcomes are sent when the log is synced up to `lsn`; now it
        is up to `synced`.
        """
        self._fresh.update(zip(tags, contents, strict=True))
        self._await_sync(tags, lsn, synced)

    def digest(self, tags: Sequence[bytes]) -> None:
        """Replace the contents of messages by their fingerprints (`fresh.FreshTags`)."""
        fresh = self._fresh
        left = [tag for tag in tags if tag in fresh]
        if left:
            self._accepted.update(zip(left, fingerprints_of([fresh.pop(tag) for tag in left]), strict=True))

    def _await_sync(self, tags: Sequence[bytes], lsn: int, synced: int) -> None:
        if self._in_doubt:
            self._in_doubt.difference_update(tags)
        unsynced = self._unsynced
        while unsynced and unsynced[0][0] <= synced:
            unsynced.popleft()
        if lsn > synced:
            unsynced.append((lsn, tags))

    def enlist(self, tags: Sequence[bytes], posts: EnlistedPosts) -> None:
        """Add messages that are posted in a transaction."""
        self._enlisted.update(dict.fromkeys(tags, posts))
        self._in_doubt.difference_update(tags)

    def accept_all(self, found: dict[bytes, bytes], lsn: int, synced: int) -> None:
        """Do the same for the fingerprints of accepted messages, by their tags. The dict belongs to this object from
        now on. The cost grows with the lesser of the numbers of old and new messages.
        """
        tags = list(found)
        if len(found) > len(self._accepted):
            found.update(self._accepted)
            self._accepted, found = found, {}
        self._accepted.update(found)
        self._await_sync(tags, lsn, synced)

    def withdraw(self, tags: Collection[bytes]) -> None:
        """Remove messages whose transaction has ended: all at once if no other transaction has any."""
        if len(tags) == len(self._enlisted):
            self._enlisted = {}
            return
        for tag in tags:
            self._enlisted.pop(tag, None)

    def restore(self, accepted: dict[bytes, bytes]) -> None:
        """Take the fingerprints of accepted messages by their tags, after a restart. The dict is not copied."""
        self._accepted = accepted

    def note(self, tag: bytes, arrival: Arrival) -> None:
        """Add a message with this outcome."""
        self._in_doubt.discard(tag)
        self._accepted.pop(tag, None)
        self._fresh.pop(tag, None)
        self._others[tag] = arrival

    def forget(self, tags: Collection[bytes]) -> list[bytes]:
        """Remove tags that the sender has settled. Return those of messages that may be in the log: the accepted
        ones.
        """
        gone = []
        self.supersede(tags)
        if not self._in_doubt and not self._others and not self._enlisted:
            pop, pop_fresh = self._accepted.pop, self._fresh.pop
            return [tag for tag in tags if pop_fresh(tag, None) is not None or pop(tag, None) is not None]
        for tag in tags:
            self._in_doubt.discard(tag)
            posts = self._enlisted.pop(tag, None)
            if posts is not None:
                del posts.tags[tag]  # the commit publishes the message, and keeps no tag
            elif self._accepted.pop(tag, None) is not None or self._fresh.pop(tag, None) is not None:
                gone.append(tag)
            else:
                self._others.pop(tag, None)
        return gone

    def clear(self) -> list[dict[bytes, Any]]:
        """Forget everything. Return the messages by their tags, whose memory the caller frees. Those in the first dict
        may be in the log.
        """
        self._accepted.update(self._fresh)  # only the tags are needed
        gone: list[dict[bytes, Any]] = [self._accepted, self._others]
        self._accepted, self._fresh, self._others = {}, {}, {}
        for tag, posts in self._enlisted.items():
            del posts.tags[tag]
        self._enlisted.clear()
        self._unsynced.clear()
        self._in_doubt.clear()
        self._certain = frozenset()
        self.interrupt(None)
        return gone

    # -- a delivery that arrived in part

    def interrupt(self, partial: Partial | None) -> None:
        """Keep what has arrived of a delivery (None: nothing), in place of what was kept before."""
        if self.partial is not None:
            self.partial.close()
        self.partial = partial

    def supersede(self, tags: Collection[bytes]) -> None:
        """Forget the delivery that arrived in part if other deliveries have its tag now."""
        if self.partial is not None and self.partial.tag in tags:
            self.interrupt(None)

    def take_partial(self, tag: bytes) -> Partial | None:
        """Remove and return the delivery with this tag that arrived in part."""
        partial = self.partial
        if partial is None or partial.tag != tag:
            return None
        self.partial = None
        return partial

    # -- resuming

    def suspend(self, synced: int) -> None:
        """Note that the link is gone while the log is synced up to `synced`. Later outcomes have not left the
        broker.
        """
        self._certain = frozenset(tag for lsn, tags in self._unsynced if lsn > synced for tag in tags)
        self._unsynced.clear()

    def reconcile(
        self, remote: Mapping[bytes, bool], *, complete: bool
    ) -> tuple[dict[bytes, Arrival | None], list[dict[bytes, Any]]]:
        """Compare with the unsettled deliveries of a sender that resumes. `remote` says of each tag whether the sender
        knows a state of the delivery.

        Return the broker's own map for those tags, and the messages that are forgotten, as `clear` does: with a
        `complete` map, the sender has settled all others. None in the map says that the sender must send the message
        again. This takes time for each tag in `remote`, however many others there are.
        """
        found: dict[bytes, Arrival | None] = {}
        self.digest(list(self._fresh))
        self._in_doubt.clear()
        for tag, known in remote.items():
            arrival = self.get(tag)
            if arrival is None:
                continue
            if known or tag in self._certain:
                found[tag] = arrival
            else:
                found[tag] = None
                self._in_doubt.add(tag)
        self._certain = frozenset()
        if self.partial is not None and complete and self.partial.tag not in remote:
            self.interrupt(None)
        if not complete:
            return found, []
        for tag in [tag for tag in self._enlisted if tag not in remote]:
            self.forget((tag,))
        gone: list[dict[bytes, Any]] = [self._accepted, self._others]
        self._accepted, self._others = [{tag: old.pop(tag) for tag in remote if tag in old} for old in gone]
        return found, gone
