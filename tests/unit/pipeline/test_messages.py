"""Rows of the table `messages` carry the state of open messages to the next run."""

from __future__ import annotations

import numpy as np

from escrowmq.pipeline.lifecycle import LATE, MessageFacts, lives
from escrowmq.pipeline.message_columns import MessageColumns
from escrowmq.pipeline.messages import Names, batches, from_rows
from escrowmq.pipeline.packing import joined


def test_a_message_logged_late_is_exempt_from_the_order_check_in_the_next_run_too() -> None:
    """The first of two messages was transient. It was logged after the second, when a group reserved it."""
    found = MessageColumns.empty(2)
    found["queue"][:] = 1
    found["position"][:] = 1, 2
    found["publications"][:] = 1
    found["publish_lsn"][:] = found["publish_frame"][:] = 900, 500
    found["publish_order"][:] = LATE, 0
    (batch,) = batches(found, Names({}))
    again = lives(joined([]), [from_rows(batch)], MessageFacts(begin=1000, published={1: 2}))
    assert again["publish_order"].tolist() == [LATE, 0]
    assert not np.any(again["findings"])
