"""How a sender resumes a delivery, by the states that both sides hold (section 2.6.13 of the specification)."""

from __future__ import annotations

from enum import Enum
from typing import Any

from escrowmq.amqp10.endpoint.deliveries import TERMINAL


class ResumePlan(Enum):
    """What a sender does with one delivery of its map."""

    RESEND = "send the message as a new delivery"
    RESUME = "resume, with the whole message"
    OUTCOME = "resume without the message, settled, with the receiver's outcome"
    DEFINITIVE = "resume without the message, unsettled, with the sender's outcome"
    ABORT = "resume and abort"
    SETTLE = "settle without a transfer"


def plan(local: Any, remote: Any, *, known: bool) -> ResumePlan:
    """Return the plan for a delivery. `known` says whether the receiver's map contains it.

    A client always holds the whole message, so its own state is None or terminal.
    """
    if isinstance(local, TERMINAL):
        if not known:
            return ResumePlan.SETTLE
        if not isinstance(remote, TERMINAL):
            return ResumePlan.ABORT
        return ResumePlan.OUTCOME if type(local) is type(remote) else ResumePlan.DEFINITIVE
    if not known:
        return ResumePlan.RESEND
    return ResumePlan.OUTCOME if isinstance(remote, TERMINAL) else ResumePlan.RESUME
