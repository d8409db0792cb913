"""Rows of the table `messages` carry the state of open messages to the next run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from escrowmq.pipeline.identity_columns import IdentityColumns
from escrowmq.pipeline.lifecycle import LATE, MessageFacts, lives
from escrowmq.pipeline.message_columns import MessageColumns
from escrowmq.pipeline.message_columns import joined as joined_columns
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


def test_an_open_message_keeps_its_ids_in_the_next_run() -> None:
    found = MessageColumns.empty(3)
    found["queue"][:], found["position"][:] = 1, (1, 2, 3)
    found.ids = IdentityColumns(pa.array(["m-1", "m-2"]), pa.array([None, "c"], pa.string()), pa.array(["a", "b"]))
    found["ident"][:] = 1, -1, 0
    (batch,) = batches(MessageColumns.unpack(found.pack()), Names({}))
    again = joined_columns([from_rows(batch), MessageColumns.unpack(from_rows(batch).take(np.array([2])).pack())], 1)
    assert again.identities().message_id.to_pylist() == ["m-2", None, "m-1", "m-1", None]
    assert again.identities().correlation_id.to_pylist() == ["c", None, None, None, None]
    assert again.identities().publisher.to_pylist() == ["b", None, "a", "a", None]
