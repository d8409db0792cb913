"""Released and modified deliveries in the world of branches: marks stay with a message through crashes and compaction.

Branches do not work on the queue `MARKED`: their outcome and the marks of messages that they return are two records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from escrowmq.core.engine import Engine
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.queue import Queue
from tests.harness.contents import body_of
from tests.simulation.branch_model import MARKED, Model
from tests.simulation.ledger import Violation

HOW: Final = ("accept", "requeue", "reject")
HOW_MARKED: Final = ("accept", "requeue", "release", "modify", "modify and fail")


def give_back(engine: Engine, model: Model, consumer: Consumer, entry: Entry, how: str, number: int) -> None:
    """Let a client return a delivery as `how` says. `number` determines what it adds to the message."""
    serial, before = int(body_of(entry)), entry.deliveries
    note = {f"note-{number % 3}": b"%d" % number} if how.startswith("modify") else {}
    if how == "requeue":
        engine.requeue(consumer, [entry])
    elif how == "release":
        engine.release(consumer, [entry])
    else:
        engine.modify(consumer, [entry], Modification(how == "modify and fail", note))
    if how != "requeue" or model.item(MARKED, serial).failures is not None:
        model.mark(serial, before, note, failed=how in ("requeue", "modify and fail"))
    model.item(MARKED, serial).holder = None


def compare(queue: Queue, model: Model, serials: Mapping[int, int]) -> None:
    """Compare the marks of a queue with the model's. `serials` has the messages by position."""
    found = {
        serials[position]: (marks.failures, dict(marks.annotations), set(marks.excluded))
        for position, marks in queue.marks.items()
    }
    expected = {
        item.serial: (item.failures, item.annotations, set[str]())
        for item in model.queues[queue.name]
        if item.failures is not None
    }
    if found != expected:
        raise Violation(f"the messages of {queue.name} have the marks {found}; expected: {expected}")
