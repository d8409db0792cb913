"""Messages as rows of the table, and as what the next run goes on from."""

from __future__ import annotations

import numpy as np

from escrowmq.pipeline.lifecycle import LATE, World, lives
from escrowmq.pipeline.messages import Names, batches, slots
from escrowmq.pipeline.packing import joined
from escrowmq.pipeline.slots import Slots


def test_what_came_to_the_log_late_says_nothing_about_order_in_the_next_run_either() -> None:
    """The first of two was transient, and was written only when a group held it: behind the second."""
    found = Slots.empty(2)
    found["queue"][:] = 1
    found["position"][:] = 1, 2
    found["publications"][:] = 1
    found["publish_lsn"][:] = found["publish_frame"][:] = 900, 500
    found["publish_order"][:] = LATE, 0
    (batch,) = batches(found, Names({}))
    again = lives(joined([]), [slots(batch)], World(begin=1000, published={1: 2}))
    assert again["publish_order"].tolist() == [LATE, 0]
    assert not np.any(again["findings"])
