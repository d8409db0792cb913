"""Broken journals: records that a broker must never write, among records that it does write.

`PLANTED` has a function for each fault. It writes valid and invalid records about one queue, and returns the violation
that an audit must find.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from escrowmq.core.branches.branch import State
from escrowmq.core.branches.xid import Xid
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import (
    Item,
    Prepared,
    SettlementItem,
    encode_number,
    encode_placed,
    encode_prepare,
    encode_settlement,
    run_head,
)
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.deliveries import REDELIVERED
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import Move, encode_moves, encode_readdressed
from escrowmq.core.records.queue_state import encode_delivered, encode_returned
from escrowmq.core.records.references import Range, Reference
from escrowmq.core.records.reservations import Held, HeldRange, encode_held, encode_released
from tests.pipeline.journals import Scribe


class Expected(NamedTuple):
    """A violation: rule ID, name, subject (`queue position` or `branch number`), and an LSN that must be named."""

    rule: str
    name: str
    subject: str
    lsn: int


def duplicated(scribe: Scribe, queue: int, name: str) -> Expected:
    """A position is published twice."""
    scribe.publish(queue, 1, 3)
    scribe.frame()
    again = scribe.publish(queue, 3)
    return Expected("ORD-4", "duplicated", f"{name} 3", again)


def reordered(scribe: Scribe, queue: int, name: str) -> Expected:
    """A position is published after a higher one."""
    scribe.publish(queue, 1, 2)
    scribe.publish(queue, 4)
    late = scribe.publish(queue, 3)
    return Expected("ORD-1", "reordered", f"{name} 3", late)


def settled_twice(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is settled again in a later frame."""
    scribe.publish(queue, 1, 5)
    scribe.frame()
    scribe.settle(queue, [1, 2, 3])
    scribe.frame()
    again = scribe.settle(queue, [2], Outcome.REJECTED)
    return Expected("SET-4", "settled twice", f"{name} 2", again)


def never_published(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is settled that was never published."""
    scribe.publish(queue, 1, 2)
    scribe.frame()
    lsn = scribe.settle(queue, [1, 2, 3])
    return Expected("DUR-3", "never published", f"{name} 3", lsn)


def settled_before_commit(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is settled in the frame of its commit, so it was handed out before the commit was on disk."""
    scribe.publish(queue, 1)
    scribe.frame()
    scribe.commit(scribe.published([(queue, 2)]), scribe.settled(queue, [1]))
    lsn = scribe.settle(queue, [2])
    scribe.frame()
    return Expected("TX-2", "visible too early", f"{name} 2", lsn)


def handed_out_before_commit(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is handed out according to the log, and published later."""
    scribe.publish(queue, 1)
    scribe.frame()
    lsn = scribe.append(Kind.DELIVERED, encode_delivered(queue, 3))
    scribe.frame()
    scribe.commit(scribe.published([(queue, 2)]))
    return Expected("TX-2", "visible too early", f"{name} 2", lsn)


def half_applied(scribe: Scribe, queue: int, name: str) -> Expected:
    """The effects of a branch are spread over two records."""
    scribe.publish(queue, 1)
    scribe.frame()
    scribe.commit(scribe.published([(queue, 2)]))
    second = scribe.commit(scribe.settled(queue, [1]), branch=scribe.branch)
    return Expected("TX-5", "half-applied transaction", f"branch {scribe.branch}", second)


def torn_commit(scribe: Scribe, queue: int, name: str) -> Expected:
    """The record of a commit contains fewer operations than it declares."""
    scribe.branch += 1
    parts, _ = encode_commit(scribe.branch, [scribe.published([(queue, 1)]), scribe.published([(queue, 2)])])
    whole = b"".join(parts)
    first = 12 + 5 + int.from_bytes(whole[13:17], "little")
    lsn = scribe.append(Kind.COMMIT, whole[:first])
    return Expected("TX-5", "half-applied transaction", f"branch {scribe.branch}", lsn)


def torn_dead_letter(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message leaves its queue as rejected, but the record lacks the dead letter."""
    scribe.publish(queue, 1)
    scribe.frame()
    parts, _ = encode_commit(0, [scribe.settled(queue, [1], Outcome.REJECTED), scribe.published([(queue, 2)])])
    whole = b"".join(parts)
    first = 12 + 5 + int.from_bytes(whole[13:17], "little")
    lsn = scribe.append(Kind.COMMIT, whole[:first])
    return Expected("TX-5", "half-applied transaction", "branch 0", lsn)


def prepare(scribe: Scribe, queue: int, settle: int, *, ago_ms: int = 0) -> tuple[int, int]:
    """Prepare a branch that publishes two messages and settles one. Returns the LSNs of the record and of its block."""
    scribe.branch += 1
    xid = Xid(1, b"global", scribe.branch.to_bytes(4, "big")).encode()
    now = scribe.now_us // 1000 - ago_ms
    head = run_head([queue], mandatory=False)
    block = encode_block(now, Envelope("", "q", protocol=91, durable=True), [b"one", b"two"])
    items = [
        (Item.RUN, [head, *block]),
        encode_settlement(SettlementItem(queue, Outcome.ACCEPTED, [Range(settle, 1)], requeue=False)),
    ]
    branch = Prepared(scribe.branch, State.PREPARED, now, now, 0, xid, "a client", [], [])
    parts, offsets = encode_prepare(branch, items)
    lsn = scribe.append(Kind.PREPARE, *parts)
    return lsn, lsn + offsets[0] + len(head)


def differently_applied(scribe: Scribe, queue: int, name: str) -> Expected:
    """A commit omits a part of the prepared operations."""
    scribe.publish(queue, 1)
    scribe.frame()
    _, block = prepare(scribe, queue, 1)
    scribe.frame()
    lsn = scribe.commit((Kind.PLACED, [encode_placed([(queue, 2)], block, 2)]), branch=scribe.branch)
    return Expected("TX-5", "half-applied transaction", f"branch {scribe.branch}", lsn)


def more_applied(scribe: Scribe, queue: int, name: str) -> Expected:
    """A commit repeats the prepared messages, and adds one that had not been prepared."""
    scribe.publish(queue, 1)
    scribe.frame()
    prepare(scribe, queue, 1)
    scribe.frame()
    came = scribe.published([(queue, 2)], [b"one", b"two", b"three"])
    lsn = scribe.commit(came, scribe.settled(queue, [1]), branch=scribe.branch)
    return Expected("TX-5", "half-applied transaction", f"branch {scribe.branch}", lsn)


def of_other_content(scribe: Scribe, queue: int, name: str) -> Expected:
    """A commit publishes the messages of another branch."""
    scribe.publish(queue, 1, 2)
    scribe.frame()
    _, block = prepare(scribe, queue, 1)
    scribe.append(Kind.ROLLBACK, encode_number(scribe.branch))
    prepare(scribe, queue, 2)
    scribe.frame()
    operations = (Kind.PLACED, [encode_placed([(queue, 3)], block, 2)]), scribe.settled(queue, [2])
    lsn = scribe.commit(*operations, branch=scribe.branch)
    return Expected("TX-5", "half-applied transaction", f"branch {scribe.branch}", lsn)


def otherwise_settled(scribe: Scribe, queue: int, name: str) -> Expected:
    """A commit rejects a message for which acceptance was prepared."""
    scribe.publish(queue, 1)
    scribe.frame()
    _, block = prepare(scribe, queue, 1)
    scribe.frame()
    placed = (Kind.PLACED, [encode_placed([(queue, 2)], block, 2)])
    lsn = scribe.commit(placed, scribe.settled(queue, [1], Outcome.REJECTED), branch=scribe.branch)
    return Expected("TX-5", "half-applied transaction", f"branch {scribe.branch}", lsn)


def prepared_again(scribe: Scribe, queue: int, name: str) -> Expected:
    """A branch is prepared again after it was rolled back."""
    scribe.publish(queue, 1)
    scribe.frame()
    prepare(scribe, queue, 1)
    scribe.append(Kind.ROLLBACK, encode_number(scribe.branch))
    scribe.branch -= 1
    lsn, _ = prepare(scribe, queue, 1)
    return Expected("TX-8", "came back", f"branch {scribe.branch}", lsn)


def never_prepared(scribe: Scribe, queue: int, name: str) -> Expected:
    """A commit places messages of a branch that was never prepared."""
    block = scribe.publish(queue, 1, 2) + 16
    scribe.frame()
    lsn = scribe.commit((Kind.PLACED, [encode_placed([(queue, 3)], block, 2)]))
    return Expected("DUR-3", "never prepared", f"branch {scribe.branch}", lsn)


def forgotten_in_doubt(scribe: Scribe, queue: int, name: str) -> Expected:
    """An undecided branch is forgotten."""
    scribe.publish(queue, 1)
    scribe.frame()
    prepare(scribe, queue, 1)
    scribe.frame()
    lsn = scribe.append(Kind.FORGET, encode_number(scribe.branch))
    return Expected("DUR-1", "lost", f"branch {scribe.branch}", lsn)


def contradicted(scribe: Scribe, queue: int, name: str) -> Expected:
    """A branch is committed after it was rolled back."""
    scribe.publish(queue, 1)
    scribe.frame()
    _, block = prepare(scribe, queue, 1)
    scribe.append(Kind.ROLLBACK, encode_number(scribe.branch))
    scribe.frame()
    operations = (Kind.PLACED, [encode_placed([(queue, 2)], block, 2)]), scribe.settled(queue, [1])
    lsn = scribe.commit(*operations, branch=scribe.branch)
    return Expected("HALF-3", "decision contradicted", f"branch {scribe.branch}", lsn)


def delivered_after_settlement(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is delivered after it was settled."""
    scribe.publish(queue, 1, 2)
    scribe.frame()
    scribe.deliver(queue, [1, 2])
    scribe.settle(queue, [1])
    scribe.frame()
    lsn = scribe.deliver(queue, [1], REDELIVERED)
    return Expected("TX-8", "delivered again", f"{name} 1", lsn)


def not_marked(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is delivered a second time without the redelivered flag."""
    scribe.publish(queue, 1, 2)
    scribe.frame()
    scribe.deliver(queue, [1, 2])
    scribe.frame()
    lsn = scribe.deliver(queue, [2])
    return Expected("ORD-3", "not marked", f"{name} 2", lsn)


def delivered_out_of_order(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is skipped, and delivered for the first time after a later one."""
    scribe.publish(queue, 1, 3)
    scribe.frame()
    scribe.deliver(queue, [1, 3])
    lsn = scribe.deliver(queue, [2])
    return Expected("ORD-1", "delivered out of order", f"{name} 2", lsn)


def delivered_before_commit(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is delivered in the frame of its commit, which was not on disk yet."""
    scribe.commit(scribe.published([(queue, 1)]))
    lsn = scribe.deliver(queue, [1])
    return Expected("TX-2", "visible too early", f"{name} 1", lsn)


def relocate(
    scribe: Scribe,
    queue: int,
    positions: Sequence[int],
    bodies: Sequence[bytes],
    *,
    key: str = "q",
    header: bytes = b"",
    ago_ms: int = 0,
) -> tuple[int, int]:
    """Relocate messages as a compaction does. Returns the LSNs of the record and of its block.

    Args:
        scribe: the journal.
        queue: the queue's number.
        positions: the positions of the messages.
        bodies: the copied bodies.
        key: the copied routing key.
        header: the copied properties.
        ago_ms: the time since the messages arrived, in milliseconds.
    """
    block = encode_block(scribe.now_us // 1000 - ago_ms, Envelope("", key, header, protocol=91, durable=True), bodies)
    head = encode_moves([Move(queue, array("Q", positions), array("I", range(len(positions))))])
    lsn = scribe.append(Kind.RELOCATE, head, *block)
    return lsn, lsn + len(head)


def copied_otherwise(scribe: Scribe, queue: int, name: str) -> Expected:
    """A compaction gives a message the routing key of another."""
    scribe.publish(queue, 1, 2)
    lsn, _ = relocate(scribe, queue, [2], [b"body"], key="another")
    return Expected("DUR-3", "content changed", f"{name} 2", lsn)


def copied_in_part(scribe: Scribe, queue: int, name: str) -> Expected:
    """A compaction truncates a message."""
    scribe.publish(queue, 1, 2)
    lsn, _ = relocate(scribe, queue, [1, 2], [b"body", b"bod"])
    return Expected("DUR-3", "content changed", f"{name} 2", lsn)


def copied_with_another_body(scribe: Scribe, queue: int, name: str) -> Expected:
    """A compaction replaces a body by another of the same size."""
    scribe.publish(queue, 1, 2)
    lsn, _ = relocate(scribe, queue, [1, 2], [b"body", b"bodY"])
    return Expected("DUR-3", "content changed", f"{name} 2", lsn)


def copied_with_another_header(scribe: Scribe, queue: int, name: str) -> Expected:
    """A compaction changes the properties, which queues do not interpret."""
    scribe.publish(queue, 1, 2)
    lsn, _ = relocate(scribe, queue, [2], [b"body"], header=b"another")
    return Expected("DUR-3", "content changed", f"{name} 2", lsn)


def prepared_and_copied_otherwise(scribe: Scribe, queue: int, name: str) -> Expected:
    """A compaction changes a message that a two-phase commit has published."""
    scribe.publish(queue, 1)
    scribe.frame()
    _, block = prepare(scribe, queue, 1)
    scribe.frame()
    placed = (Kind.PLACED, [encode_placed([(queue, 2)], block, 2)])
    scribe.commit(placed, scribe.settled(queue, [1]), branch=scribe.branch)
    scribe.frame()
    lsn, _ = relocate(scribe, queue, [2, 3], [b"one", b"tWo"], ago_ms=2)
    return Expected("DUR-3", "content changed", f"{name} 3", lsn)


def looked_for_in_another_body(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is readdressed to another one of the same size."""
    scribe.publish(queue, 1, 2)
    kind, parts = scribe.published([(queue, 3)], [b"bodY"])
    scribe.append(kind, *parts)
    _, block = relocate(scribe, queue, [1, 3], [b"body", b"bodY"])
    move = Move(queue, array("Q", [2]), array("I", [1]))
    lsn = scribe.append(Kind.READDRESSED, encode_readdressed([move], block))
    return Expected("DUR-3", "content changed", f"{name} 2", lsn)


def looked_for_elsewhere(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is readdressed to an index after the last message of a block."""
    scribe.publish(queue, 1, 2)
    _, block = relocate(scribe, queue, [1, 2], [b"body", b"body"])
    move = Move(queue, array("Q", [2]), array("I", [2]))
    lsn = scribe.append(Kind.READDRESSED, encode_readdressed([move], block))
    return Expected("DUR-3", "content changed", f"{name} 2", lsn)


def looked_for_where_no_block_is(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is readdressed to an address at which no block begins."""
    scribe.publish(queue, 1, 2)
    _, block = relocate(scribe, queue, [1, 2], [b"body", b"body"])
    move = Move(queue, array("Q", [2]), array("I", [0]))
    lsn = scribe.append(Kind.READDRESSED, encode_readdressed([move], block + 20))
    return Expected("DUR-3", "content changed", f"{name} 2", lsn)


def held_without_content(scribe: Scribe, queue: int, name: str) -> Expected:
    """The copy of a reserved message has an index after the last message of a block."""
    scribe.publish(queue, 1)
    _, block = relocate(scribe, queue, [1], [b"body"])
    scribe.frame()
    copies = [Reference(2, 1, block, 1)]
    lsn = scribe.append(Kind.HELD, *encode_held(Held(queue, "group", 1, 1, [HeldRange(2, 1, 0)], copies)))
    return Expected("DUR-3", "content changed", f"{name} 2", lsn)


def returned_after_settlement(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is returned to its queue after it was settled."""
    scribe.publish(queue, 1, 2)
    scribe.frame()
    scribe.append(Kind.RETURNED, encode_returned(queue, [(1, 1)]))
    scribe.settle(queue, [1])
    lsn = scribe.append(Kind.RETURNED, encode_returned(queue, [(1, 2)]))
    return Expected("TX-8", "delivered again", f"{name} 1", lsn)


def held_after_settlement(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is reserved for bulk readers after it was settled."""
    scribe.publish(queue, 1, 3)
    scribe.frame()
    scribe.settle(queue, [1])
    lsn = scribe.append(Kind.HELD, *encode_held(Held(queue, "group", 1, 1, [HeldRange(1, 2, 0)], [])))
    return Expected("TX-8", "delivered again", f"{name} 1", lsn)


def settled_without_a_hold(scribe: Scribe, queue: int, name: str) -> Expected:
    """A group of bulk readers settles a message that it had not reserved."""
    scribe.publish(queue, 1, 3)
    scribe.frame()
    scribe.append(Kind.HELD, *encode_held(Held(queue, "group", 1, 1, [HeldRange(2, 2, 0)], [])))
    released = encode_released(queue, "group", 3, 3)
    lsn = scribe.commit(scribe.settled(queue, [1, 2]), (Kind.RELEASED, [released]))
    return Expected("PIPE-1", "held out of turn", f"{name} 1", lsn)


def rejected_by_a_hold(scribe: Scribe, queue: int, name: str) -> Expected:
    """A group of bulk readers settles a message as rejected."""
    scribe.publish(queue, 1)
    scribe.frame()
    scribe.append(Kind.HELD, *encode_held(Held(queue, "group", 1, 1, [HeldRange(1, 1, 0)], [])))
    released = encode_released(queue, "group", 2, 2)
    lsn = scribe.commit(scribe.settled(queue, [1], Outcome.REJECTED), (Kind.RELEASED, [released]))
    return Expected("PIPE-1", "held out of turn", f"{name} 1", lsn)


def published_to_a_deleted_queue(scribe: Scribe, queue: int, name: str) -> Expected:
    """A message is published to a deleted queue."""
    scribe.publish(queue, 1)
    scribe.frame()
    scribe.delete(queue, name)
    lsn = scribe.publish(queue, 2)
    return Expected("DUR-1", "lost", f"{name} 2", lsn)


def undecided(scribe: Scribe, queue: int, name: str) -> Expected:
    """A branch was prepared two hours ago and is still undecided."""
    scribe.publish(queue, 1)
    scribe.frame()
    lsn, _ = prepare(scribe, queue, 1, ago_ms=7_200_000)
    return Expected("PIPE-5", "undecided too long", f"branch {scribe.branch}", lsn)


Plant = Callable[[Scribe, int, str], Expected]
PLANTED: Final[dict[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        duplicated,
        reordered,
        settled_twice,
        never_published,
        settled_before_commit,
        handed_out_before_commit,
        half_applied,
        torn_commit,
        torn_dead_letter,
        differently_applied,
        more_applied,
        of_other_content,
        otherwise_settled,
        prepared_again,
        never_prepared,
        forgotten_in_doubt,
        contradicted,
        delivered_after_settlement,
        not_marked,
        delivered_out_of_order,
        delivered_before_commit,
        copied_otherwise,
        copied_in_part,
        copied_with_another_body,
        copied_with_another_header,
        prepared_and_copied_otherwise,
        looked_for_in_another_body,
        looked_for_elsewhere,
        looked_for_where_no_block_is,
        held_without_content,
        returned_after_settlement,
        held_after_settlement,
        settled_without_a_hold,
        rejected_by_a_hold,
        published_to_a_deleted_queue,
        undecided,
    )
}


def good(scribe: Scribe, queue: int) -> None:
    """Write a valid history of a queue: publishes, relocations, transactions, two-phase commits, settlements."""
    scribe.publish(queue, 1, 3)
    _, copy = relocate(scribe, queue, [2, 3], [b"body", b"body"])
    move = Move(queue, array("Q", [1]), array("I", [1]))
    scribe.append(Kind.READDRESSED, encode_readdressed([move], copy))
    scribe.commit(scribe.published([(queue, 4)]), scribe.published([(queue, 5)]))
    scribe.frame()
    scribe.append(Kind.DELIVERED, encode_delivered(queue, 6))
    scribe.deliver(queue, [3, 4])
    scribe.deliver(queue, [3], REDELIVERED)
    scribe.settle(queue, [1, 2], Outcome.PURGED)
    _, block = prepare(scribe, queue, 3)
    scribe.frame()
    placed = (Kind.PLACED, [encode_placed([(queue, 6)], block, 2)])
    scribe.commit(placed, scribe.settled(queue, [3]), branch=scribe.branch)
    scribe.frame()
    prepare(scribe, queue, 4)
    scribe.append(Kind.ROLLBACK, encode_number(scribe.branch))
    scribe.commit(scribe.settled(queue, [4, 6]))
    scribe.frame()


def all_planted(scribe: Scribe) -> Iterator[Expected]:
    """Write every fault on a queue of its own, among valid queues. Yields the expected violations."""
    for number, (name, plant) in enumerate(PLANTED.items(), 1):
        scribe.queue(2 * number, name)
        yield plant(scribe, 2 * number, name)
        scribe.frame()
        scribe.queue(2 * number + 1, f"good {number}")
        good(scribe, 2 * number + 1)
