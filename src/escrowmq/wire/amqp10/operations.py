"""The operations of each performative, as data: the way from AMQP 1.0 to the rights (`core.access.table`; SEC-1).

A performative that a server may receive has an entry. Its handler asks the connection's door for each of these
operations that has needs, some of them only if an argument asks for it. A performative without an entry has no handler
and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from escrowmq.core.access.table import Operation
from escrowmq.wire.amqp10.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)

T = TypeVar("T")

OPERATIONS: Final[Mapping[type, tuple[Operation, ...]]] = {
    Open: (Operation.OPEN_VHOST,),
    Close: (Operation.OPEN_VHOST,),
    Begin: (Operation.USE_CHANNEL,),
    End: (Operation.USE_CHANNEL,),
    Attach: (
        Operation.PUBLISH,
        Operation.CONSUME,
        Operation.LOOK_UP_QUEUE,
        Operation.LOOK_UP_EXCHANGE,
        Operation.DECLARE_QUEUE,
        Operation.DECLARE_EXCHANGE,
        Operation.BIND_QUEUE,
        Operation.TRANSACT,
    ),
    Flow: (Operation.USE_CHANNEL,),
    Transfer: (Operation.PUBLISH, Operation.TRANSACT),
    Disposition: (Operation.SETTLE, Operation.TRANSACT),
    Detach: (Operation.CANCEL,),
}
"""By the class of the performative. Before a connection is open, only Open is read."""


def admitted(handlers: Mapping[type, T]) -> dict[type, T]:
    """Return the handlers of performatives that have an entry."""
    return {performative: handler for performative, handler in handlers.items() if performative in OPERATIONS}
