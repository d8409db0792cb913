"""Compare snapshots of one state, which need not be equal octet by octet."""

from __future__ import annotations

from collections.abc import Iterable

from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.queue_state import decode_queue_state, encode_queue_state

Record = tuple[Kind, bytes]


def plain(records: Iterable[tuple[Kind, list[bytes]]]) -> list[Record]:
    """Return the records of a snapshot, without the delivery counts that follow from `QueueState.delivered_below`.

    A message that is only in the log has no count of its own, but has one when it was read, which is no change.
    """
    return [(kind, _plain_state(parts) if kind is Kind.QUEUE_STATE else b"".join(parts)) for kind, parts in records]


def _plain_state(parts: list[bytes]) -> bytes:
    state = decode_queue_state(b"".join(parts))
    own = [(position, count) for position, count in state.deliveries if count > 1 or position >= state.delivered_below]
    return b"".join(encode_queue_state(state._replace(deliveries=own)))
