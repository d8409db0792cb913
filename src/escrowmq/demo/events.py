"""The messages that publisher, consumer and Spark's driver exchange with the main process (pickled, over pipes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Committing:
    """Publisher: `tx.commit` of this transaction is about to be sent."""

    number: int


@dataclass(frozen=True, slots=True)
class Committed:
    """Publisher: this transaction is complete, by `tx.commit-ok` or because all of it was found on the queue."""

    number: int
    published: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Publisher: the connection was lost during this transaction, before or after its commit was sent."""

    number: int
    first: int
    count: int
    commit_sent: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to `Interrupted`: how many messages of that transaction are on the queue."""

    count: int


@dataclass(frozen=True, slots=True)
class Published:
    """Publisher: all messages were sent. `digest` is the sum of their checksums."""

    count: int
    digest: int
    resent: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Consumer: the number of settled messages."""

    settled: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """The number of deliveries, unsettled when the connection was lost, that were redelivered."""

    doubtful: int
    doubtful_back: int
    unsettled: int
    unsettled_back: int


@dataclass(frozen=True, slots=True)
class Marked:
    """Consumer: a marker arrived, and therefore everything before it in the queue."""

    marker: int
    found: int
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class Tally:
    """Consumer: the end marker arrived; the counts."""

    settled: int
    digest: int
    lost: int
    twice: int
    out_of_order: int
    repeated: int
    left: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Publisher, consumer or driver: it cannot continue."""

    reason: str


@dataclass(frozen=True, slots=True)
class Up:
    """Driver: the Spark session is ready; the query is about to start."""

    pyspark: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Driver: this epoch is in progress."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Tabled:
    """Driver: the epoch's part of the table is written; the broker's decision comes next."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Decided:
    """Driver: the broker has decided this epoch. `before` means that it had done so before the epoch began."""

    epoch: int
    rows: int
    before: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """Driver: the query has failed, and is restarted as soon as the broker can be reached."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """Driver: the query has stopped, as requested."""


FromPublisher: TypeAlias = Committing | Committed | Interrupted | Published | Failed
FromConsumer: TypeAlias = Progress | Marked | Tally | Failed
FromDriver: TypeAlias = Up | Begun | Tabled | Decided | Lost | Stopped | Failed
