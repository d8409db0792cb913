"""Attaching links: the node is found or created, the terminus granted, and the answer says what was granted.

A refused link is attached without a terminus and detached at once, with the error (section 2.6.3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SETTLED_MODE, UNSETTLED_MODE, Attach
from escrowmq.wire.amqp10.codec.states import OUTCOME_SYMBOLS, Modified
from escrowmq.wire.amqp10.codec.termini import Coordinator, Source, Target
from escrowmq.wire.amqp10.coordinator import CAPABILITIES, CoordinatorLink
from escrowmq.wire.amqp10.delays import DELAYED_DELIVERY
from escrowmq.wire.amqp10.errors import (
    INVALID_FIELD,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    AmqpFault,
    Scope,
    link_fault,
    refusal,
)
from escrowmq.wire.amqp10.filters import filters_of, subscription_arguments
from escrowmq.wire.amqp10.incoming import ProducerLink
from escrowmq.wire.amqp10.lending import borrow, granted, recovered
from escrowmq.wire.amqp10.management.links import ADDRESS as MANAGEMENT
from escrowmq.wire.amqp10.management.links import PAIRED, RequestLink, ResponseLink
from escrowmq.wire.amqp10.nodes import DynamicNode, Nodes
from escrowmq.wire.amqp10.outgoing import ConsumerLink
from escrowmq.wire.amqp10.policy import AFTER, WINDOW, SettlementPolicy, policy_of
from escrowmq.wire.amqp10.publication import Destination
from escrowmq.wire.amqp10.resuming import map_for_producer, plan_for_consumer
from escrowmq.wire.amqp10.subscriptions import Subscription, remaining_source, subscription_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.link import Link

MANY: Final = 1000
"""Unsettled deliveries above which a link is attached in a turn of its own."""
_COPY: Final = "copy"
_CLAIMS: Final = "$cbs"
"""The node to which clients of Azure send tokens. Without it, auto-creation would make a queue that never answers."""
_DEFAULT_OUTCOME: Final = Modified(delivery_failed=True)


def attach(link: Link, request: Attach) -> Iterator[None] | None:
    """Attach `link` as `request` asks, or refuse it. The client's next performative is read after the returned task.
    Raises AmqpFault that costs the session or the connection.
    """
    if len(request.unsettled or ()) > MANY:
        return _attach_later(link, request)
    return _attach(link, request)


def _attach_later(link: Link, request: Attach) -> Iterator[None]:
    """Attach in a later turn, because it took time to decode the map of unsettled deliveries."""
    requests = link.session.connection.broker.engine.requests
    requests.left = min(requests.left, 0)
    yield
    yield from _attach(link, request) or ()


def _attach(link: Link, request: Attach) -> Iterator[None] | None:
    try:
        if not request.name:
            raise link_fault(INVALID_FIELD, "a link needs a name")
        if _CLAIMS in {getattr(request.source, "address", None), getattr(request.target, "address", None)}:
            raise link_fault(NOT_IMPLEMENTED, "tokens are not accepted (claims-based security); log in by SASL")
        if request.role == RECEIVER:
            return _attach_consumer(link, request)
        _attach_producer(link, request)
    except BrokerError as error:
        _refuse(link, request, refusal(error))
    except AmqpFault as fault:
        if fault.scope is not Scope.LINK:
            raise
        _refuse(link, request, fault)
    return None


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


def _attach_consumer(link: Link, request: Attach) -> Iterator[None] | None:
    """The client receives: it reads a queue. Return the rest of the work."""
    connection = link.session.connection
    source = request.source or recovered(link) or remaining_source(link)
    if not isinstance(source, Source):
        raise link_fault(NOT_FOUND, f"no terminus of link '{request.name}' to recover")
    if source.address == MANAGEMENT and not source.dynamic:
        _attach_responses(link, request)
        return None
    if source.distribution_mode not in {None, "move", _COPY}:
        raise link_fault(INVALID_FIELD, f"distribution mode '{source.distribution_mode}' is unknown")
    nodes = Nodes(connection)
    node: DynamicNode | None = None
    subscription: Subscription | None = None
    if source.dynamic:
        node = nodes.dynamic(source)
        queue = nodes.queue(node.address)
    elif source.address:
        subscription = subscription_of(link, source)
        arguments = subscription_arguments(source.filter, connection.container)
        queue = nodes.queue(source.address, source.capabilities, subscription, arguments)
    else:
        raise link_fault(INVALID_FIELD, "the source has no address")
    try:
        given, end, loan = _lend_source(link, request, source, queue, node, subscription)
    except (AmqpFault, BrokerError):
        _discard(link, queue, node, subscription)
        raise
    link.end = end
    answer = _answer(request, given, request.target)
    if end.policy is not None:
        answer.properties = {key: value for key, value in (request.properties or {}).items() if key in {AFTER, WINDOW}}
    rest = None
    if request.unsettled is not None:
        plan = plan_for_consumer(loan, request, answer, connection.frame_max)
        answer.unsettled, answer.incomplete_unsettled = plan.unsettled, plan.incomplete
        rest = end.resume(plan)
    if subscription is not None and subscription.durable and queue.name == subscription.queue:
        end.subscribed = True
    after = max(loan.lsn, connection.broker.log.end_lsn if queue.durable else 0)
    link.session.send(answer, connection.broker.log.proof_lsn(after))
    return rest


def _lend_source(
    link: Link,
    request: Attach,
    source: Source,
    queue: Queue,
    node: DynamicNode | None,
    subscription: Subscription | None,
) -> tuple[Source, ConsumerLink, Loan]:
    """Subscribe to `queue`. Return the source that is granted, with the broker's end of the link. Raises AmqpFault,
    BrokerError.
    """
    filters = filters_of(queue, source.filter)
    browses = _browses(source, queue, request, subscribed=subscription is not None)
    given = replace(
        granted(link, request, source),
        address=node.address if node is not None else source.address,
        dynamic_node_properties=node.properties if node is not None else None,
        filter=filters.granted,
        default_outcome=source.default_outcome or _DEFAULT_OUTCOME,
        outcomes=source.outcomes or OUTCOME_SYMBOLS,
    )
    presettled = browses or request.snd_settle_mode == SETTLED_MODE
    policy = policy_of(request.properties, presettled=presettled)
    end = ConsumerLink(link, queue, presettled=presettled, node=node, filters=filters, browses=browses)
    loan = borrow(link, request, given, end)
    try:
        end.subscribe(loan)
    except BrokerError:
        link.session.forget_loan(loan)
        loan.close()
        raise
    end.policy = SettlementPolicy(policy, end) if policy is not None else None
    return given, end, loan


def _discard(link: Link, queue: Queue, node: DynamicNode | None, subscription: Subscription | None) -> None:
    """Delete the nodes that were created for a link which is refused. A durable subscription stays."""
    generated = queue.exclusive or (subscription is not None and not subscription.durable)
    if generated and queue.auto_delete and not queue.consumers and not queue.deleted:
        link.session.connection.broker.directory.delete_queue(queue)
    if node is not None:
        node.discard()


def _browses(source: Source, queue: Queue, request: Attach, *, subscribed: bool) -> bool:
    """Return whether the link shows messages without taking them. Raises AmqpFault.

    Subscribers of a topic ask for copies, too. Each has a queue of its own, from which it takes its copies.
    """
    if source.distribution_mode != _COPY or subscribed or (queue.exclusive and queue.auto_delete):
        return False
    if request.snd_settle_mode == UNSETTLED_MODE:
        raise link_fault(
            NOT_IMPLEMENTED, "copies of messages are sent settled; attach with the sender's mode settled or mixed"
        )
    return True


def _attach_coordinator(link: Link, request: Attach) -> None:
    """The client controls transactions on this link."""
    end = CoordinatorLink(link, request)
    link.end = end
    link.session.send(_answer(request, request.source, Coordinator(capabilities=CAPABILITIES)))
    end.grant()


def _attach_requests(link: Link, request: Attach) -> None:
    """The client sends requests to the management node on this link."""
    end = RequestLink(link, request)
    link.end = end
    answer = _answer(request, request.source, Target(MANAGEMENT))
    answer.properties = dict(PAIRED)
    link.session.send(answer)
    end.grant()


def _attach_responses(link: Link, request: Attach) -> None:
    """The management node sends its responses on this link. They are settled."""
    end = ResponseLink(link)
    link.end = end
    answer = _answer(request, Source(MANAGEMENT), request.target)
    answer.snd_settle_mode = SETTLED_MODE
    answer.properties = dict(PAIRED)
    link.session.send(answer)
    end.attached()


def _attach_producer(link: Link, request: Attach) -> None:
    """The client sends: its messages are routed to queues."""
    connection = link.session.connection
    target = request.target or recovered(link)
    if isinstance(target, Coordinator):
        _attach_coordinator(link, request)
        return
    if isinstance(target, Target) and target.address == MANAGEMENT and not target.dynamic:
        _attach_requests(link, request)
        return
    if not isinstance(target, Target):
        raise link_fault(NOT_FOUND, f"no terminus of link '{request.name}' to recover")
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
    try:
        end = ProducerLink(link, request, route, node)
        end.check()
        given = replace(
            granted(link, request, target),
            address=node.address if node is not None else target.address,
            dynamic_node_properties=node.properties if node is not None else None,
        )
        loan = borrow(link, request, given, end)
    except (AmqpFault, BrokerError):
        if node is not None:
            node.discard()
        raise
    end.lend(loan)
    link.end = end
    answer = _answer(request, request.source, given)
    answer.max_message_size = connection.limits.message_size
    if DELAYED_DELIVERY in request.desired_capabilities:
        answer.offered_capabilities = (DELAYED_DELIVERY,)
    if request.unsettled is not None:
        found = map_for_producer(loan, request, answer, connection.frame_max, connection.transactions)
        answer.unsettled, answer.incomplete_unsettled = found
    link.session.send(answer, connection.broker.log.proof_lsn(max(loan.lsn, connection.broker.log.end_lsn)))
    connection.publishes()
    link.session.credit_later(end)
