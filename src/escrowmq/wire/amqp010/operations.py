"""The operations of each command, as data: the way from AMQP 0-10 to the table of rights (`core.access.table`; SEC-1).

A command that a server may receive has an entry. Its handler asks the session's door for each of these operations that
has needs, some of them only if a field asks for it. A command without an entry has no handler and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.wire.amqp010.codec import spec

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.structs import Command
    from escrowmq.wire.amqp010.ports import Handler

_SESSION: Final = (Operation.USE_CHANNEL,)
_SETTLE: Final = (Operation.SETTLE,)
_TRANSACT: Final = (Operation.TRANSACT,)

OPERATIONS: Final[Mapping[type[Command], tuple[Operation, ...]]] = {
    spec.ExecutionSync: _SESSION,
    spec.ExecutionResult: _SESSION,
    spec.ExecutionException: _SESSION,
    spec.MessageTransfer: (Operation.PUBLISH,),
    spec.MessageAccept: _SETTLE,
    spec.MessageReject: _SETTLE,
    spec.MessageRelease: _SETTLE,
    spec.MessageAcquire: _SETTLE,
    spec.MessageResume: _SESSION,
    spec.MessageSubscribe: (Operation.CONSUME,),
    spec.MessageCancel: (Operation.CANCEL,),
    spec.MessageSetFlowMode: _SESSION,
    spec.MessageFlow: _SESSION,
    spec.MessageFlush: _SESSION,
    spec.MessageStop: _SESSION,
    spec.TxSelect: _TRANSACT,
    spec.TxCommit: _TRANSACT,
    spec.TxRollback: _TRANSACT,
    spec.DtxSelect: _SESSION,
    spec.DtxStart: (Operation.START_BRANCH, Operation.JOIN_BRANCH, Operation.LEAVE_BRANCH),
    spec.DtxEnd: (Operation.LEAVE_BRANCH,),
    spec.DtxCommit: (Operation.COMMIT_BRANCH,),
    spec.DtxForget: (Operation.FORGET_BRANCH,),
    spec.DtxGetTimeout: (Operation.GET_TIMEOUT,),
    spec.DtxPrepare: (Operation.PREPARE_BRANCH,),
    spec.DtxRecover: (Operation.LIST_BRANCH,),
    spec.DtxRollback: (Operation.ROLL_BACK_BRANCH,),
    spec.DtxSetTimeout: (Operation.SET_TIMEOUT,),
    spec.ExchangeDeclare: (Operation.DECLARE_EXCHANGE, Operation.SET_ALTERNATE, Operation.LOOK_UP_EXCHANGE),
    spec.ExchangeDelete: (Operation.DELETE_EXCHANGE,),
    spec.ExchangeQuery: (Operation.LOOK_UP_EXCHANGE,),
    spec.ExchangeBind: (Operation.BIND_QUEUE,),
    spec.ExchangeUnbind: (Operation.UNBIND_QUEUE,),
    spec.ExchangeBound: (Operation.LIST_BINDINGS,),
    spec.QueueDeclare: (Operation.DECLARE_QUEUE, Operation.SET_DEAD_LETTER, Operation.LOOK_UP_QUEUE),
    spec.QueueDelete: (Operation.DELETE_QUEUE,),
    spec.QueuePurge: (Operation.PURGE_QUEUE,),
    spec.QueueQuery: (Operation.LOOK_UP_QUEUE,),
}
"""By the class of the command."""


def admitted(handlers: Mapping[type[Command], Handler]) -> dict[type[Command], Handler]:
    """The handlers of commands that have an entry."""
    return {kind: handler for kind, handler in handlers.items() if kind in OPERATIONS}
