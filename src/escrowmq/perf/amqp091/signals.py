"""The frames that end or delay a run."""

from __future__ import annotations

from struct import unpack_from

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import raise_if_closed
from escrowmq.perf.errors import PerfError
from escrowmq.perf.peer import Peer


def take_signal(peer: Peer, kind: int, payload: memoryview) -> None:
    """Act on a frame that is not part of the load. Raises PerfError if the broker closes or cancels."""
    if kind != frames.METHOD:
        return
    method = unpack_from(">I", payload)[0]
    raise_if_closed(method, payload)
    if method == frames.CONNECTION_BLOCKED:
        peer.blocked = bytes(payload[5 : 5 + payload[4]]).decode("utf-8", "replace")
    elif method == frames.CONNECTION_UNBLOCKED:
        peer.blocked = None
    elif method == frames.BASIC_CANCEL:
        raise PerfError(f"the broker cancelled the consumer ({peer.label})")
    elif method == frames.BASIC_RETURN:
        peer.totals.returned += 1
