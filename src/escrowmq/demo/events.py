"""What publisher, consumer, Spark's driver and the one who watches them tell each other (over pipes, pickled)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Committing:
    """Publisher: `tx.commit` of this transaction goes out now."""

    number: int


@dataclass(frozen=True, slots=True)
class Committed:
    """Publisher: this transaction is done, by `tx.commit-ok`, or because it was found whole."""

    number: int
    published: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Publisher: the connection was lost in this transaction, after or before its commit was sent."""

    number: int
    first: int
    count: int
    commit_sent: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Answer to `Interrupted`: so many messages of that transaction are on the queue."""

    count: int


@dataclass(frozen=True, slots=True)
class Published:
    """Publisher: everything was sent. `digest` is the sum of the checksums of all messages."""

    count: int
    digest: int
    resent: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Consumer: so many messages are settled."""

    settled: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """What became of the deliveries that were held when the connection was lost: how many of them came back."""

    doubtful: int
    doubtful_back: int
    unsettled: int
    unsettled_back: int


@dataclass(frozen=True, slots=True)
class Marked:
    """Consumer: a marker arrived, and with it everything that stood before it in the queue."""

    marker: int
    found: int
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class Tally:
    """Consumer: the end has come; what was counted, message by message."""

    settled: int
    digest: int
    lost: int
    twice: int
    out_of_order: int
    repeated: int
    left: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Publisher, consumer or driver: it cannot go on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Up:
    """Driver: the Spark session is there, the query is about to be started."""

    pyspark: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Driver: this epoch is under way."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Tabled:
    """Driver: the epoch's share of the table is written; the broker's decision comes next."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Decided:
    """Driver: the broker has decided this epoch; `before` if it had done so when the epoch was begun."""

    epoch: int
    rows: int
    before: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """Driver: the query has failed, and is started again as soon as the broker can be reached."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """Driver: the query was stopped, as it was told to be."""


FromPublisher: TypeAlias = Committing | Committed | Interrupted | Published | Failed
FromConsumer: TypeAlias = Progress | Marked | Tally | Failed
FromDriver: TypeAlias = Up | Begun | Tabled | Decided | Lost | Stopped | Failed
