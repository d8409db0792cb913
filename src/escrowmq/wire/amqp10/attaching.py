"""Attaching links: the node is found or created, the terminus granted, and the answer says what was granted.

A refused link is attached without a terminus and detached at once, with the error (section 2.6.3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SETTLED_MODE, Attach
from escrowmq.wire.amqp10.codec.states import OUTCOME_SYMBOLS, Accepted, Modified, Rejected, Released
from escrowmq.wire.amqp10.codec.termini import Coordinator, Source, Target
from escrowmq.wire.amqp10.dispositions import modification
from escrowmq.wire.amqp10.errors import (
    INVALID_FIELD,
    NOT_IMPLEMENTED,
    AmqpFault,
    Scope,
    link_fault,
    refusal,
)
from escrowmq.wire.amqp10.incoming import ProducerLink
from escrowmq.wire.amqp10.nodes import DynamicNode, Nodes
from escrowmq.wire.amqp10.outgoing import ConsumerLink, consumer_name
from escrowmq.wire.amqp10.publication import Destination

if TYPE_CHECKING:
    from escrowmq.wire.amqp10.link import Link

_SELECTORS: Final = frozenset(
    ("jms-selector", "apache.org:selector-filter:string", "no-local", "apache.org:no-local-filter:list")
)
"""Filters without which a client would receive messages that it must not see."""
_DEFAULT_OUTCOME: Final = Modified(delivery_failed=True)


def attach(link: Link, request: Attach) -> None:
    """Attach `link` as `request` asks, or refuse it. Raises AmqpFault that costs the session or the connection."""
    try:
        if not request.name:
            raise link_fault(INVALID_FIELD, "a link needs a name")
        if request.role == RECEIVER:
            _attach_consumer(link, request)
        else:
            _attach_producer(link, request)
    except BrokerError as error:
        _refuse(link, request, refusal(error))
    except AmqpFault as fault:
        if fault.scope is not Scope.LINK:
            raise
        _refuse(link, request, fault)


def _refuse(link: Link, request: Attach, fault: AmqpFault) -> None:
    answer = Attach(
        name=request.name,
        handle=request.handle,
        role=not request.role,
        snd_settle_mode=request.snd_settle_mode,
        rcv_settle_mode=request.rcv_settle_mode,
        # The terminus of the broker is missing; that of the client is returned.
        source=None if request.role == RECEIVER else request.source,
        target=request.target if request.role == RECEIVER else None,
        initial_delivery_count=0 if request.role == RECEIVER else None,
    )
    link.session.send(answer)
    link.fail(fault)


def _answer(request: Attach, source: Source | None, target: Target | Coordinator | None) -> Attach:
    """Return the answer to `request`; both settle modes are granted as they were requested."""
    return Attach(
        name=request.name,
        handle=request.handle,
        role=not request.role,
        snd_settle_mode=request.snd_settle_mode,
        rcv_settle_mode=request.rcv_settle_mode,
        source=source,
        target=target,
        initial_delivery_count=0 if request.role == RECEIVER else None,
    )


def _attach_consumer(link: Link, request: Attach) -> None:
    """The client receives: it reads a queue."""
    connection = link.session.connection
    source = request.source
    if source is None:
        raise link_fault(NOT_IMPLEMENTED, "recovering the source of a link is not implemented")
    if source.distribution_mode not in {None, "move"}:
        raise link_fault(NOT_IMPLEMENTED, f"distribution mode '{source.distribution_mode}' is not implemented")
    for key, value in (source.filter or {}).items():
        if str(key) in _SELECTORS or str(getattr(value, "descriptor", "")) in _SELECTORS:
            raise link_fault(NOT_IMPLEMENTED, f"filter '{key}' is not implemented")
    nodes = Nodes(connection)
    node: DynamicNode | None = None
    if source.dynamic:
        node = nodes.dynamic(source)
        queue = node.queue
    elif source.address:
        queue = nodes.queue(source.address, source.capabilities)
    else:
        raise link_fault(INVALID_FIELD, "the source has no address")
    default = source.default_outcome or _DEFAULT_OUTCOME
    end = ConsumerLink(
        link,
        queue,
        default=_settlement_of(default, consumer_name(link)),
        presettled=request.snd_settle_mode == SETTLED_MODE,
        node=node,
    )
    granted = Source(
        address=node.address if node is not None else source.address,
        expiry_policy="session-end",
        dynamic=source.dynamic,
        dynamic_node_properties=node.properties if node is not None else None,
        default_outcome=default,
        outcomes=source.outcomes or OUTCOME_SYMBOLS,
        capabilities=source.capabilities,
    )
    end.subscribe()
    link.end = end
    after = connection.broker.log.end_lsn if queue.durable else 0
    link.session.send(_answer(request, granted, request.target), after)


def _settlement_of(outcome: object, name: str) -> Disposition | Modification:
    """Return the broker's word for a default outcome. Raises AmqpFault."""
    match outcome:
        case Accepted():
            return Disposition.ACCEPTED
        case Rejected():
            return Disposition.REJECTED
        case Released():
            return Disposition.RELEASED
        case Modified():
            return modification(name, outcome)
    raise link_fault(INVALID_FIELD, "the default outcome is no outcome")


def _attach_producer(link: Link, request: Attach) -> None:
    """The client sends: its messages are routed to queues."""
    connection = link.session.connection
    target = request.target
    if isinstance(target, Coordinator):
        raise link_fault(NOT_IMPLEMENTED, "transactions are not implemented")
    if target is None:
        raise link_fault(NOT_IMPLEMENTED, "recovering the target of a link is not implemented")
    if request.initial_delivery_count is None:
        raise link_fault(INVALID_FIELD, "a sender's attach needs an initial-delivery-count")
    nodes = Nodes(connection)
    node: DynamicNode | None = None
    route: Destination | None = None
    if target.dynamic:
        node = nodes.dynamic(target)
        route = node.route
    elif target.address:
        route = nodes.route(target.address, target.capabilities)
    end = ProducerLink(link, request, route, node)
    end.check()
    granted = replace(
        target,
        address=node.address if node is not None else target.address,
        durable=0,
        expiry_policy="session-end",
        timeout=0,
        dynamic_node_properties=node.properties if node is not None else None,
    )
    link.end = end
    answer = _answer(request, request.source, granted)
    answer.max_message_size = connection.limits.message_size
    link.session.send(answer, connection.broker.log.end_lsn)
    connection.publishes()
    link.session.credit_later(end)
