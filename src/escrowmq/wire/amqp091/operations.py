"""The operations of each method, as data: the way from AMQP 0-9-1 to the table of rights (`core.access.table`; SEC-1).

A method that a server may receive has an entry. Its handler asks the channel's door for each of these operations that
has needs, some of them only if an argument asks for it. A method without an entry has no handler and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from escrowmq.core.access.table import Operation
from escrowmq.wire.amqp091 import spec

Handler = Callable[[Any, Any], Iterator[bool | None] | None]
"""Executes a method. For a method that may take long it is a generator, which yields after each bounded piece, or
`WAIT` if it can only go on in a later turn.
"""

_CHANNEL: Final = (Operation.USE_CHANNEL,)
_DIALOGUE: Final = (Operation.OPEN_VHOST,)

OPERATIONS: Final[Mapping[int, tuple[Operation, ...]]] = {
    spec.ConnectionStartOk.INDEX: _DIALOGUE,
    spec.ConnectionSecureOk.INDEX: _DIALOGUE,
    spec.ConnectionTuneOk.INDEX: _DIALOGUE,
    spec.ConnectionOpen.INDEX: _DIALOGUE,
    spec.ConnectionClose.INDEX: _DIALOGUE,
    spec.ConnectionCloseOk.INDEX: _DIALOGUE,
    spec.ConnectionUpdateSecret.INDEX: _DIALOGUE,
    spec.ChannelOpen.INDEX: _CHANNEL,
    spec.ChannelFlow.INDEX: _CHANNEL,
    spec.ChannelFlowOk.INDEX: _CHANNEL,
    spec.ChannelClose.INDEX: _CHANNEL,
    spec.ChannelCloseOk.INDEX: _CHANNEL,
    spec.ExchangeDeclare.INDEX: (
        Operation.DECLARE_EXCHANGE,
        Operation.SET_ALTERNATE,
        Operation.LOOK_UP_EXCHANGE,
    ),
    spec.ExchangeDelete.INDEX: (Operation.DELETE_EXCHANGE,),
    spec.ExchangeBind.INDEX: (Operation.BIND_EXCHANGE,),
    spec.ExchangeUnbind.INDEX: (Operation.UNBIND_EXCHANGE,),
    spec.QueueDeclare.INDEX: (Operation.DECLARE_QUEUE, Operation.SET_DEAD_LETTER, Operation.LOOK_UP_QUEUE),
    spec.QueueBind.INDEX: (Operation.BIND_QUEUE,),
    spec.QueueUnbind.INDEX: (Operation.UNBIND_QUEUE,),
    spec.QueuePurge.INDEX: (Operation.PURGE_QUEUE,),
    spec.QueueDelete.INDEX: (Operation.DELETE_QUEUE,),
    spec.BasicQos.INDEX: _CHANNEL,
    spec.BasicConsume.INDEX: (Operation.CONSUME,),
    spec.BasicCancel.INDEX: (Operation.CANCEL,),
    spec.BasicCancelOk.INDEX: (Operation.CANCEL,),
    spec.BasicPublish.INDEX: (Operation.PUBLISH,),
    spec.BasicGet.INDEX: (Operation.GET,),
    spec.BasicAck.INDEX: (Operation.SETTLE,),
    spec.BasicNack.INDEX: (Operation.SETTLE,),
    spec.BasicReject.INDEX: (Operation.SETTLE,),
    spec.BasicRecover.INDEX: (Operation.SETTLE,),
    spec.BasicRecoverAsync.INDEX: (Operation.SETTLE,),
    spec.ConfirmSelect.INDEX: _CHANNEL,
    spec.TxSelect.INDEX: (Operation.TRANSACT,),
    spec.TxCommit.INDEX: (Operation.TRANSACT,),
    spec.TxRollback.INDEX: (Operation.TRANSACT,),
    spec.DtxDemarcationSelect.INDEX: _CHANNEL,
    spec.DtxDemarcationStart.INDEX: (Operation.START_BRANCH, Operation.JOIN_BRANCH, Operation.LEAVE_BRANCH),
    spec.DtxDemarcationEnd.INDEX: (Operation.LEAVE_BRANCH,),
    spec.DtxCoordinationPrepare.INDEX: (Operation.PREPARE_BRANCH,),
    spec.DtxCoordinationCommit.INDEX: (Operation.COMMIT_BRANCH,),
    spec.DtxCoordinationRollback.INDEX: (Operation.ROLL_BACK_BRANCH,),
    spec.DtxCoordinationForget.INDEX: (Operation.FORGET_BRANCH,),
    spec.DtxCoordinationRecover.INDEX: (Operation.LIST_BRANCH,),
    spec.DtxCoordinationGetTimeout.INDEX: (Operation.GET_TIMEOUT,),
    spec.DtxCoordinationSetTimeout.INDEX: (Operation.SET_TIMEOUT,),
    spec.EscrowHold.INDEX: (Operation.RESERVE,),
    spec.EscrowRead.INDEX: (Operation.READ_RESERVED,),
    spec.EscrowSettle.INDEX: (Operation.SETTLE_RESERVED,),
    spec.EscrowRelease.INDEX: (Operation.RELEASE_RESERVED,),
    spec.EscrowDescribe.INDEX: (Operation.DESCRIBE_QUEUE,),
    spec.EscrowDecide.INDEX: (Operation.SET_PROGRESS, Operation.DECIDE_BRANCH),
    spec.EscrowProgress.INDEX: (Operation.GET_PROGRESS,),
    spec.EscrowList.INDEX: (Operation.LIST_QUEUE,),
    spec.EscrowPartitions.INDEX: (Operation.DESCRIBE_TOPIC, Operation.DESCRIBE_QUEUE),
    spec.EscrowPublish.INDEX: (Operation.PUBLISH,),
}
"""By the index of the method. Before a connection is open, the handshake admits only its own methods."""


def admitted(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The handlers of methods that have an entry."""
    return {index: handler for index, handler in handlers.items() if index in OPERATIONS}
