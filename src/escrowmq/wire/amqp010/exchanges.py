"""The class `exchange`: declare, delete, query, bind, unbind and bound. None of them is transactional (TX-9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.budget import STEPS
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.leftover import WAIT
from escrowmq.core.messages.values import canonical
from escrowmq.core.topology.arguments.queue import DEAD_LETTER_EXCHANGE
from escrowmq.core.topology.exchanges import KINDS
from escrowmq.core.topology.vhost import RESERVED_PREFIX
from escrowmq.wire.amqp010.arguments import plain
from escrowmq.wire.amqp010.codec.spec import (
    ExchangeBind,
    ExchangeBound,
    ExchangeBoundResult,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExchangeQueryResult,
    ExchangeUnbind,
)
from escrowmq.wire.amqp010.ports import Reply
from escrowmq.wire.amqp010.queues import named, queue_of

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.exchange import Binding, Exchange
    from escrowmq.wire.amqp010.codec.structs import Command
    from escrowmq.wire.amqp010.ports import Content, Handler, SessionPort, Work

_ALTERNATE: Final = "alternate-exchange"


def exchange_declare(session: SessionPort, command: ExchangeDeclare, _: Content | None) -> Work:
    """Declare an exchange. For one that exists, only the type and the alternate exchange are compared (rule sticky)."""
    name = _named(command.exchange)
    exchanges, directory = session.vhost.exchanges, session.broker.directory
    if command.passive:
        session.door.check(Operation.LOOK_UP_EXCHANGE, exchange=name)
        session.vhost.exchange(name)
        return None
    session.door.check(Operation.DECLARE_EXCHANGE, exchange=name)
    arguments = plain(command.arguments)
    if command.alternate_exchange:
        arguments.setdefault(_ALTERNATE, command.alternate_exchange)
    alternate = arguments.get(_ALTERNATE)
    if isinstance(alternate, str):
        session.door.check(Operation.SET_ALTERNATE, exchange=name, alternate=alternate)
    found = exchanges.get(name)
    if found is not None:
        _check_alike(found, command, alternate)
        return _changed(session, durable=found.durable)  # another client may just have declared it
    if name.startswith(RESERVED_PREFIX):
        raise BrokerError(Condition.NOT_ALLOWED, f"exchange name '{name}' has the reserved prefix '{RESERVED_PREFIX}'")
    kind = command.type or ""
    if kind not in KINDS:
        raise BrokerError(Condition.NOT_FOUND, f"unknown exchange type '{kind}'")
    if isinstance(alternate, str):
        session.vhost.exchange(alternate)
    streams = yield from directory.new_streams(session.vhost, name, kind, arguments)
    directory.declare_exchange(
        session.vhost,
        name,
        kind,
        streams=streams,
        durable=command.durable,
        auto_delete=command.auto_delete,
        arguments=arguments,
    )
    return _changed(session, durable=command.durable)


def _check_alike(found: Exchange[Queue], command: ExchangeDeclare, alternate: object) -> None:
    """Raises NOT_ALLOWED if the exchange that exists has another type, or another alternate exchange."""
    if found.kind != command.type:
        text = f"exchange '{found.name}' has the type '{found.kind}', not '{command.type}'"
        raise BrokerError(Condition.NOT_ALLOWED, text)
    if alternate is not None and found.arguments.get(_ALTERNATE) != alternate:
        text = f"exchange '{found.name}' has another alternate exchange than '{alternate}'"
        raise BrokerError(Condition.NOT_ALLOWED, text)


def exchange_delete(session: SessionPort, command: ExchangeDelete, _: Content | None) -> Work:
    """Delete an exchange. The answer follows when its bindings are removed."""
    name = _named(command.exchange)
    session.door.check(Operation.DELETE_EXCHANGE, exchange=name)
    found = session.vhost.exchange(name)
    if name.startswith(RESERVED_PREFIX):
        raise BrokerError(Condition.NOT_ALLOWED, f"exchange '{name}' belongs to the broker and cannot be deleted")
    _check_no_alternate(session, name)
    session.broker.directory.delete_exchange(session.vhost, name, if_unused=command.if_unused)
    while found in session.vhost.unbinding.gone:
        yield WAIT
    return _changed(session, durable=True)


def _check_no_alternate(session: SessionPort, name: str) -> None:
    """Raises NOT_ALLOWED if queues or other exchanges have this alternate exchange (exception used-as-alternate)."""
    queues, exchanges = session.vhost.queues, session.vhost.exchanges
    session.broker.engine.requests.left -= (len(queues) + len(exchanges)) // STEPS
    users = [f"queue '{each.name}'" for each in queues.values() if each.arguments.get(DEAD_LETTER_EXCHANGE) == name]
    users += [f"exchange '{each.name}'" for each in exchanges.values() if each.arguments.get(_ALTERNATE) == name]
    if users:
        raise BrokerError(Condition.NOT_ALLOWED, f"exchange '{name}' is the alternate exchange of {users[0]}")


def exchange_query(session: SessionPort, command: ExchangeQuery, _: Content | None) -> Reply:
    """Describe an exchange. The empty name is that of the default exchange, which every broker has."""
    name = command.name or ""
    session.door.check(Operation.LOOK_UP_EXCHANGE, exchange=name)
    found = session.vhost.exchanges.get(name)
    if found is None:
        return Reply(ExchangeQueryResult(not_found=True))
    result = ExchangeQueryResult(found.kind, durable=found.durable, arguments=dict(found.arguments))
    return Reply(result)


def exchange_bind(session: SessionPort, command: ExchangeBind, _: Content | None) -> Reply | None:
    """Bind a queue."""
    name, key = _named(command.exchange), command.binding_key or ""
    queue = queue_of(session, command.queue, Operation.BIND_QUEUE, exchange=name, key=key)
    session.broker.directory.bind_queue(session.vhost, name, queue.name, key, plain(command.arguments))
    return _changed(session, durable=queue.durable)


def exchange_unbind(session: SessionPort, command: ExchangeUnbind, _: Content | None) -> Reply | None:
    """Remove the bindings of a queue with this key, whatever their arguments. Raises NOT_FOUND if there are none."""
    name, key = _named(command.exchange), command.binding_key or ""
    queue = queue_of(session, command.queue, Operation.UNBIND_QUEUE, exchange=name)
    source = session.vhost.exchange(name)
    bindings = _bindings_to(session, queue)
    found = [each for each in bindings if each.source is source and each.routing_key == key]
    if not found:
        text = f"queue '{queue.name}' is not bound to exchange '{name}' with the key '{key}'"
        raise BrokerError(Condition.NOT_FOUND, text)
    for binding in found:
        session.broker.directory.unbind_queue(session.vhost, name, queue.name, key, binding.arguments)
    return _changed(session, durable=queue.durable)


def exchange_bound(session: SessionPort, command: ExchangeBound, _: Content | None) -> Reply:
    """Say whether a binding exists, and otherwise which parts of it match none (as Qpid does)."""
    name = command.exchange or ""
    source = session.vhost.exchanges.get(name)
    queue = session.vhost.queues.get(command.queue) if command.queue else None
    if source is None or (command.queue and queue is None):
        no_queue = bool(command.queue) and queue is None
        return Reply(ExchangeBoundResult(exchange_not_found=source is None, queue_not_found=no_queue))
    session.door.check(Operation.LIST_BINDINGS, exchange=name)
    if not name:
        return Reply(_bound_by_default(session, command, queue))
    key, arguments = command.binding_key, command.arguments
    wanted = canonical(plain(arguments)) if arguments else None
    bindings = list(source.bindings.values()) if queue is None else _bindings_to(session, queue)
    session.broker.engine.requests.left -= len(bindings) // STEPS
    of_source = [each for each in bindings if each.source is source]
    with_key = [each for each in of_source if key is None or each.routing_key == key]
    if any(wanted is None or canonical(each.arguments) == wanted for each in with_key):
        return Reply(ExchangeBoundResult())
    every = list(source.bindings.values())
    session.broker.engine.requests.left -= len(every) // STEPS
    return Reply(
        ExchangeBoundResult(
            queue_not_matched=queue is not None and not of_source,
            key_not_matched=key is not None and not any(each.routing_key == key for each in every),
            args_not_matched=wanted is not None and not any(canonical(each.arguments) == wanted for each in every),
        )
    )


def _bound_by_default(session: SessionPort, command: ExchangeBound, queue: Queue | None) -> ExchangeBoundResult:
    """Say whether a queue is bound to the default exchange, which it is with its name as the key."""
    key = command.binding_key
    unknown = key is not None and key not in session.vhost.queues
    other = queue is not None and key is not None and key != queue.name
    return ExchangeBoundResult(queue_not_matched=other and not unknown, key_not_matched=unknown)


def _bindings_to(session: SessionPort, queue: Queue) -> list[Binding[Queue]]:
    bindings = session.vhost.bindings_to(queue.name, to_exchange=False)
    session.broker.engine.requests.left -= len(bindings) // STEPS
    return bindings


def _named(name: str | None) -> str:
    """Return the name of an exchange. Raises INVALID_ARGUMENT for none (rule exchange-name-required)."""
    return named(name, "exchange")


def _changed(session: SessionPort, *, durable: bool) -> Reply | None:
    """Complete a change of the topology. One that is durable waits for the disk."""
    return Reply(after=session.broker.log.end_lsn) if durable else None


HANDLERS: Final[Mapping[type[Command], Handler]] = {
    ExchangeDeclare: exchange_declare,
    ExchangeDelete: exchange_delete,
    ExchangeQuery: exchange_query,
    ExchangeBind: exchange_bind,
    ExchangeUnbind: exchange_unbind,
    ExchangeBound: exchange_bound,
}
