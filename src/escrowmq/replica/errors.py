"""The errors of replication. Their texts are for the operator."""

from __future__ import annotations


class ReplicaError(Exception):
    """The base of all errors of this package."""


class EntryDamaged(ReplicaError):  # noqa: N818 - named after the event
    """An entry of the replicated log is not intact, or not of this program."""


class AppendUnknown(ReplicaError):  # noqa: N818 - named after the event
    """The log has not answered an append. It may have stored all of the entries, some or none, and may do so later."""


class Deposed(ReplicaError):  # noqa: N818 - named after the event
    """Another node leads. Nothing that this node appends counts any more."""

    def __init__(self, epoch: int, leader: str) -> None:
        super().__init__(f"{leader} leads now, since epoch {epoch}")
        self.epoch = epoch
        self.leader = leader


class EntriesLost(ReplicaError):  # noqa: N818 - named after the event
    """The log does not have entries that it had acknowledged or delivered.

    `position` is the first one that is missing, as far as the node knows. The node must read the log again from its
    beginning, with a new tail that knows no places, before it does anything else.
    """

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"the replicated log has lost entries from position {position} on: {why}")
        self.position = position


class CopyRefused(ReplicaError):  # noqa: N818 - named after the event
    """The data directory and the replicated log do not belong together."""


class NameTaken(ReplicaError):  # noqa: N818 - named after the event
    """Another node with the name of this one is there."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(
            f"another node at {url} has the name {name!r}, too; give each node a name of its own (replication.node, or "
            "ESCROWMQ_REPLICATION_NODE)"
        )


class EntriesTrimmed(ReplicaError):  # noqa: N818 - named after the event
    """The node is so far behind that the leader has trimmed what it would read next. It must copy the journal anew."""

    def __init__(self, begin: int, position: int) -> None:
        super().__init__(f"the replicated log begins at position {begin}, and this node has read up to {position} only")
        self.begin = begin
        self.position = position
