"""Broken journals whose fault concerns the journal as a whole: contents of snapshots, and consecutive numbers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from escrowmq.core.half.state import HalfState
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.records.branches import encode_decide
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.deliveries import REDELIVERED
from escrowmq.core.records.deliveries import SETTLED as DELIVERED_SETTLED
from escrowmq.core.records.half import (
    HalfDecided,
    HalfResumed,
    HalfStored,
    OriginFields,
    encode_half_decided,
    encode_half_many,
    encode_half_resumed,
    encode_half_stored,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.queue_state import QueueState, encode_queue_state
from escrowmq.core.records.reservations import Held, HeldRange, encode_held, encode_released
from escrowmq.core.records.termini import encode_acquired, encode_arrived, encode_forgotten, encode_given_back
from tests.pipeline.journals import Operation, Scribe
from tests.pipeline.planted import Expected, prepare, relocate


def lost(scribe: Scribe) -> Expected:
    """The snapshot lacks a message that has not been settled."""
    scribe.queue(1, "q")
    scribe.publish(1, 1, 3)
    scribe.frame()
    lsn = scribe.snapshot({1: [(1, 2)]})
    return Expected("DUR-1", "lost", "q 3", lsn)


def came_back(scribe: Scribe) -> Expected:
    """The snapshot contains a message that was settled."""
    scribe.queue(1, "q")
    scribe.publish(1, 1, 3)
    scribe.frame()
    scribe.settle(1, [2])
    scribe.frame()
    lsn = scribe.snapshot({1: [(1, 3)]})
    return Expected("TX-8", "came back", "q 2", lsn)


def held_twice(scribe: Scribe) -> Expected:
    """The snapshot contains a message twice."""
    scribe.queue(1, "q")
    scribe.publish(1, 1, 3)
    lsn = scribe.snapshot({1: [(1, 2), (2, 2)]})
    return Expected("ORD-4", "duplicated", "q 2", lsn)


def held_with_other_content(scribe: Scribe) -> Expected:
    """The snapshot refers to a message at the address that it had before it was relocated."""
    scribe.queue(1, "q")
    block = scribe.publish(1, 1, 3) + 16
    relocate(scribe, 1, [3], [b"body"])
    state = QueueState(1, 4, 0, array("Q", [1]), array("Q", [block]), array("I", [3]), array("I", [0]), [])
    scribe.frame()
    lsn = scribe.snapshot_of([(int(Kind.QUEUE_STATE), b"".join(encode_queue_state(state)))])
    return Expected("DUR-3", "content changed", "q 3", lsn)


def hold(scribe: Scribe, number: int, first: int, count: int, settled: int = 1) -> int:
    """Reserve messages of queue 1 for a group, with numbers from `number` on. Returns the record's LSN."""
    return scribe.append(Kind.HELD, *encode_held(Held(1, "group", settled, number, [HeldRange(first, count, 0)], [])))


def settle_hold(scribe: Scribe, number: int, positions: Sequence[int]) -> int:
    """Settle the group's messages below `number`. Returns the LSN of the RELEASED operation."""
    settled = scribe.settled(1, positions)
    released = encode_released(1, "group", number, number)
    return scribe.commit(settled, (Kind.RELEASED, [released]), branch=0) + 12 + 5 + len(settled[1][0]) + 5


def held_out_of_turn(scribe: Scribe) -> Expected:
    """A group reserves messages with numbers that it has used before."""
    scribe.queue(1, "q")
    scribe.publish(1, 1, 9)
    scribe.frame()
    hold(scribe, 1, 1, 3)
    settle_hold(scribe, 3, [1, 2])
    hold(scribe, 4, 4, 2, settled=3)
    lsn = hold(scribe, 4, 6, 2, settled=3)
    return Expected("PIPE-1", "held out of turn", "group group of queue 1", lsn)


def settled_out_of_turn(scribe: Scribe) -> Expected:
    """A group settles fewer messages than its new number implies."""
    scribe.queue(1, "q")
    scribe.publish(1, 1, 9)
    scribe.frame()
    hold(scribe, 1, 1, 3)
    lsn = settle_hold(scribe, 3, [1])
    scribe.append(Kind.RELEASED, encode_released(1, "group", 3, 4))
    return Expected("PIPE-1", "held out of turn", "group group of queue 1", lsn)


def hold_forgotten(scribe: Scribe) -> Expected:
    """A snapshot lacks the reservation of a group."""
    scribe.queue(1, "q")
    scribe.publish(1, 1)
    scribe.frame()
    hold(scribe, 1, 1, 1)
    lsn = scribe.snapshot({1: [(1, 1)]})
    return Expected("PIPE-1", "held out of turn", "group group of queue 1", lsn)


def epoch_again(scribe: Scribe) -> Expected:
    """An application decides an epoch twice, with different branches."""
    scribe.queue(1, "q")
    scribe.publish(1, 1, 2)
    scribe.frame()
    lsn = 0
    for _ in range(2):
        prepare(scribe, 1, scribe.branch + 1)
        operations = scribe.settled(1, [scribe.branch]), scribe.published([(1, 1 + 2 * scribe.branch)], [b"1", b"2"])
        parts, _ = encode_decide("/\0app", 7, [], [(scribe.branch, operations)])
        lsn = scribe.append(Kind.DECIDE, *parts)
        scribe.frame()
    return Expected("PIPE-2", "epoch decided again", "epoch 7 of app", lsn)


def epoch_forgotten(scribe: Scribe) -> Expected:
    """A snapshot contains an earlier epoch of an application."""
    scribe.append(Kind.DECIDE, *encode_decide("/\0app", 7, [], [])[0])
    scribe.frame()
    lsn = scribe.snapshot_of([(int(Kind.PROGRESS), encode_change(application="/\0app", epoch=6))])
    return Expected("PIPE-2", "epoch decided again", "the snapshot's epoch of app", lsn)


def terminus(scribe: Scribe, number: int, *, acquires: bool = False) -> tuple[int, bytes]:
    """Make a durable terminus. With `acquires`, its link settles second and receives. Returns the record."""
    settings = {"role": "outgoing", "second": True, "durability": 2} if acquires else {}
    record = encode_change(number=number, vhost="/", container="shop", link=f"link {number}", **settings)
    scribe.append(Kind.TERMINUS_SET, record)
    return int(Kind.TERMINUS_SET), record


def arrive(scribe: Scribe, number: int, position: int, tag: bytes) -> int:
    """Publish a message to queue 1 that arrives at a terminus. Returns the LSN of the ARRIVED operation."""
    published = scribe.published([(1, position)])
    arrived = Kind.ARRIVED, [encode_arrived(number, Disposition.ACCEPTED, [tag], [position.to_bytes(8, "little")])]
    return scribe.commit(published, arrived, branch=0) + 12 + 5 + sum(map(len, published[1])) + 5


def acquire(scribe: Scribe, number: int, delivery: int, first: int, count: int = 1) -> int:
    """Let a terminus acquire messages of queue 1. Returns the record's LSN."""
    return scribe.append(Kind.ACQUIRED, encode_acquired(number, 1, [(delivery, first, count)]))


def good_links(scribe: Scribe) -> None:
    """Use a tag again after its settlement and after the end of its terminus, and pass a message on."""
    scribe.queue(1, "q")
    records = [terminus(scribe, number) for number in (1, 2, 3)]
    scribe.frame()
    scribe.snapshot_of(records)
    arrive(scribe, 1, 1, b"a")
    scribe.append(Kind.FORGOTTEN, encode_forgotten(1, [b"a"]))
    arrive(scribe, 1, 2, b"a")
    arrive(scribe, 2, 3, b"a")
    scribe.append(Kind.TERMINUS_DELETED, encode_change(number=1))
    terminus(scribe, 4)
    arrive(scribe, 4, 4, b"a")
    scribe.frame()
    acquire(scribe, 2, 1, 1, 3)
    scribe.append(Kind.GIVEN_BACK, encode_given_back(2, 1, [(2, 2)]))
    acquire(scribe, 3, 1, 2)
    scribe.append(Kind.TERMINUS_DELETED, encode_change(number=3))
    acquire(scribe, 2, 4, 2)
    scribe.settle(1, [1, 2])
    scribe.frame()
    scribe.queue(2, "durable")
    scribe.publish(2, 1, 4)
    scribe.frame()
    scribe.deliver(2, [1], consumer="shop/link 5")  # before its terminus is durable
    terminus(scribe, 5, acquires=True)
    scribe.append(Kind.ACQUIRED, encode_acquired(5, 2, [(1, 2, 2)]))
    scribe.deliver(2, [2, 3], consumer="shop/link 5")
    scribe.append(Kind.GIVEN_BACK, encode_given_back(5, 2, [(3, 1)]))
    scribe.deliver(2, [3], REDELIVERED)
    scribe.deliver(2, [4], DELIVERED_SETTLED, consumer="shop/link 5")
    scribe.settle(2, [1, 2, 4])
    scribe.frame()


def arrived_twice(scribe: Scribe) -> Expected:
    """A tag arrives again at a terminus where it is unsettled."""
    good_links(scribe)
    return Expected("SET-9", "arrived twice", "tag a", arrive(scribe, 2, 5, b"a"))


def acquired_twice(scribe: Scribe) -> Expected:
    """A terminus acquires a message that belongs to another one."""
    good_links(scribe)
    acquire(scribe, 2, 5, 4)
    return Expected("SET-10", "acquired twice", "queue 1 4", acquire(scribe, 4, 1, 4))


def acquired_after_settlement(scribe: Scribe) -> Expected:
    """A terminus acquires a message that was settled."""
    good_links(scribe)
    return Expected("TX-8", "delivered again", "queue 1 2", acquire(scribe, 4, 1, 2))


def delivered_without_acquisition(scribe: Scribe) -> Expected:
    """A durable link delivers a message that its terminus has given back."""
    good_links(scribe)
    lsn = scribe.deliver(2, [3], REDELIVERED, consumer="shop/link 5")
    return Expected("SET-10", "delivered without acquisition", "queue 2 3", lsn)


LINKS: Final = (arrived_twice, acquired_twice, acquired_after_settlement, delivered_without_acquisition)
HIDDEN_QUEUE: Final = 9
ORIGIN: Final = OriginFields("orders", "shop", "guest", "", 1)


def half_queue(scribe: Scribe) -> None:
    """Declare a queue, and the hidden one of half messages."""
    scribe.queue(1, "q")
    scribe.queue(HIDDEN_QUEUE, "amq.half")


def store_half(scribe: Scribe, *numbers: int) -> int:
    """Store half messages together. Returns the record's LSN."""
    time = scribe.now_us // 1000
    published = [scribe.published([(HIDDEN_QUEUE, number)]) for number in numbers]
    stored = [HalfStored(HIDDEN_QUEUE, number, time, time + 6000, f"m{number}", ORIGIN) for number in numbers]
    return scribe.commit(*published, *((Kind.HALF_STORED, [encode_half_stored(half)]) for half in stored), branch=0)


def decided_half(scribe: Scribe, number: int, state: HalfState, *, forced: bool = False) -> Operation:
    """Return the operation that decides a half message."""
    decided = HalfDecided(HIDDEN_QUEUE, number, state, forced, scribe.now_us // 1000)
    return Kind.HALF_DECIDED, [encode_half_decided(decided)]


def commit_half(scribe: Scribe, number: int, position: int, *, forced: bool = False) -> int:
    """Commit a half message to queue 1. Returns the record's LSN."""
    removed = scribe.settled(HIDDEN_QUEUE, [number], Outcome.COMMITTED)
    decided = decided_half(scribe, number, HalfState.COMMITTED, forced=forced)
    return scribe.commit(scribe.published([(1, position)]), removed, decided, branch=0)


def roll_back_half(scribe: Scribe, *numbers: int) -> int:
    """Roll half messages back together. Returns the record's LSN."""
    removed = scribe.settled(HIDDEN_QUEUE, numbers, Outcome.ROLLED_BACK)
    return scribe.commit(removed, *(decided_half(scribe, each, HalfState.ROLLED_BACK) for each in numbers), branch=0)


def many_half(scribe: Scribe, kind: Kind, number: int, limit: int = 2) -> int:
    """Check or park a half message. Returns the record's LSN."""
    return scribe.append(kind, encode_half_many(HIDDEN_QUEUE, scribe.now_us // 1000, [number], [limit]))


def good_half(scribe: Scribe) -> None:
    """Commit, roll back, check, park and resume half messages. Number 4 stays pending."""
    half_queue(scribe)
    for number in (1, 2, 3, 4, 5):
        store_half(scribe, number)
    store_half(scribe, 6, 7)
    scribe.frame()
    roll_back_half(scribe, 6, 7)
    commit_half(scribe, 1, 1)
    roll_back_half(scribe, 2)
    for _ in range(2):
        many_half(scribe, Kind.HALF_CHECKED, 3)
    many_half(scribe, Kind.HALF_PARKED, 3)
    scribe.append(Kind.HALF_RESUMED, encode_half_resumed(HalfResumed(HIDDEN_QUEUE, 3, scribe.now_us // 1000)))
    many_half(scribe, Kind.HALF_CHECKED, 3)
    commit_half(scribe, 3, 2)
    many_half(scribe, Kind.HALF_PARKED, 5)
    commit_half(scribe, 5, 3, forced=True)
    scribe.frame()


def half_decided_twice(scribe: Scribe) -> Expected:
    """A half message is committed again."""
    good_half(scribe)
    lsn = scribe.commit(scribe.published([(1, 4)]), decided_half(scribe, 1, HalfState.COMMITTED), branch=0)
    return Expected("HALF-3", "half message decided twice", "half message 1", lsn)


def half_contradicted(scribe: Scribe) -> Expected:
    """A half message is committed after its rollback."""
    good_half(scribe)
    lsn = scribe.commit(scribe.published([(1, 4)]), decided_half(scribe, 2, HalfState.COMMITTED), branch=0)
    return Expected("HALF-3", "decision contradicted", "half message 2", lsn)


def half_delivered_after_rollback(scribe: Scribe) -> Expected:
    """The record of a rollback delivers the message."""
    good_half(scribe)
    removed = scribe.settled(HIDDEN_QUEUE, [4], Outcome.ROLLED_BACK)
    rolled_back = decided_half(scribe, 4, HalfState.ROLLED_BACK)
    lsn = scribe.commit(scribe.published([(1, 4)]), removed, rolled_back, branch=0)
    return Expected("HALF-2", "against its decision", "half message 4", lsn)


def half_delivered_undecided(scribe: Scribe) -> Expected:
    """A half message is delivered, and no record decides it."""
    good_half(scribe)
    removed = scribe.settled(HIDDEN_QUEUE, [4], Outcome.COMMITTED)
    lsn = scribe.commit(scribe.published([(1, 4)]), removed, branch=0)
    return Expected("HALF-2", "delivered undecided", "half message 4", lsn)


def half_decided_late(scribe: Scribe) -> Expected:
    """A producer commits a parked half message."""
    good_half(scribe)
    many_half(scribe, Kind.HALF_PARKED, 4)
    return Expected("HALF-6", "late decision", "half message 4", commit_half(scribe, 4, 4))


def half_never_stored(scribe: Scribe) -> Expected:
    """A half message is decided that does not exist."""
    good_half(scribe)
    scribe.publish(HIDDEN_QUEUE, 8)
    return Expected("HALF-12", "decided, but never stored", "half message 8", commit_half(scribe, 8, 4))


def half_checked_too_often(scribe: Scribe) -> Expected:
    """A half message is checked once more than allowed."""
    good_half(scribe)
    for _ in range(2):
        many_half(scribe, Kind.HALF_CHECKED, 4)
    return Expected("HALF-4", "checked too often", "half message 4", many_half(scribe, Kind.HALF_CHECKED, 4))


def half_checked_after_decision(scribe: Scribe) -> Expected:
    """A half message is checked that was decided."""
    good_half(scribe)
    return Expected("HALF-4", "checked too often", "half message 1", many_half(scribe, Kind.HALF_CHECKED, 1))


HALF: Final = (
    half_decided_twice,
    half_contradicted,
    half_delivered_after_rollback,
    half_delivered_undecided,
    half_decided_late,
    half_never_stored,
    half_checked_too_often,
    half_checked_after_decision,
)
WHOLE: Final = (
    *LINKS,
    *HALF,
    lost,
    came_back,
    held_twice,
    held_with_other_content,
    held_out_of_turn,
    settled_out_of_turn,
    hold_forgotten,
    epoch_again,
    epoch_forgotten,
)
