"""The names of the broker: virtual hosts, exchanges, queues, bindings. Each change of a durable one has a record."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from escrowmq.core.access.access import Access
from escrowmq.core.access.permissions import Entry as AccessEntry
from escrowmq.core.access.permissions import User, Vhost
from escrowmq.core.access.records import ACCESS_KINDS, deleted_record, set_record, vhost_of
from escrowmq.core.access.records import restore as restore_access
from escrowmq.core.budget import DECLARED, DELETED, Budget
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.counters import BrokerCounters, count_left
from escrowmq.core.policies.registry import KINDS as POLICY_KINDS
from escrowmq.core.policies.registry import Policies
from escrowmq.core.queues import delayed, host
from escrowmq.core.queues.admission import Admissions, filter_of
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.arguments.queue import QueueOptions, queue_options
from escrowmq.core.topology.emptying import cancelling, emptying, withdraw
from escrowmq.core.topology.equivalence import check_queue_equivalent
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding
from escrowmq.core.topology.exchanges.partitioned import PARTITIONS_ARGUMENT, PartitionedExchange
from escrowmq.core.topology.fields import binding_fields, exchange_fields, queue_fields, topology_records
from escrowmq.core.topology.partitions import NewStream, check_new_streams, check_not_partition, stream_arguments
from escrowmq.core.topology.restoring import restore
from escrowmq.core.topology.unbinding import Removal
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.core.watch import note_in

if TYPE_CHECKING:
    from escrowmq.core.ports import Random


class Declaration(NamedTuple):
    """The attributes of a queue as a client declares them."""

    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, object] = NO_ARGUMENTS


class Host(host.Host, Protocol):
    """The operations that the directory needs from the engine."""

    scarcity: str
    counters: BrokerCounters
    requests: Budget
    admissions: Admissions
    delays: delayed.Delays


class Directory:
    """The part of the broker that knows names. Changes act at once (TX-9); changes of durable names are logged."""

    def __init__(self, engine: Host, vhosts: dict[str, VirtualHost[Queue]], random: Random) -> None:
        """`vhosts` contains the virtual hosts; `random` makes names that cannot be guessed."""
        self.vhosts = vhosts
        self.access = Access()
        self.policies = Policies(engine, vhosts)
        self._engine = engine
        self._random = random
        self._next_queue = 1
        self.stream_changes = 0
        """How often topics got streams."""
        self.hidden: dict[str, Callable[[VirtualHost[Queue], int], Queue]] = {
            delayed.NAME: lambda vhost, ident: engine.delays.queue(self.delete_queue, ident, vhost.name)
        }
        """Makes a hidden queue of a virtual host, with a number; by name."""
        engine.delays.make = lambda vhost: self.make_hidden_queue(vhost, delayed.NAME, "delayed messages")
        self._unbinding: dict[VirtualHost[Queue], None] = {}  # those with bindings that are being removed
        self._before_vhost_deletion: list[Callable[[str], None]] = []
        self._at_queue_deletion: list[Callable[[Queue], None]] = []

    # -- virtual hosts

    def vhost(self, name: str) -> VirtualHost[Queue]:
        """Return the virtual host of that name. Raises NOT_FOUND."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise BrokerError(Condition.NOT_FOUND, f"no such vhost '{name}'")
        return vhost

    def add_vhost(self, name: str) -> bool:
        """Add an empty virtual host; return False if it exists. Raises INVALID_ARGUMENT as `Access.add_vhost` does."""
        if name in self.vhosts:
            return False
        self.record_access(self.access.add_vhost(name))
        self.vhosts[name] = VirtualHost(name)
        return True

    def before_vhost_deletion(self, drop: Callable[[str], None]) -> None:
        """Call `drop` with the name of each virtual host that is to be deleted, for objects that it contains."""
        self._before_vhost_deletion.append(drop)

    def at_queue_deletion(self, drop: Callable[[Queue], None]) -> None:
        """Call `drop` with each queue that is being deleted, for objects that refer to it."""
        self._at_queue_deletion.append(drop)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with everything in it, including permissions, branches and progress. Raises
        NOT_FOUND.
        """
        vhost = self.vhost(name)
        for drop in self._before_vhost_deletion:
            drop(name)
        for queue in vhost.every_queue():
            self._delete_queue(queue)
        del self.vhosts[name]
        self.policies.forget_vhost(name)
        self._engine.counters.vhost_deleted(name)
        self.record_access_removed(self.access.remove_vhost(name))
        self._engine.left_over.begin(self._dismantling(vhost))

    def _dismantling(self, vhost: VirtualHost[Queue]) -> Iterator[None]:
        """Free the memory of a deleted virtual host's exchanges and bindings, in pieces."""
        for cost in vhost.unbinding.dismantle():
            self._engine.requests.left -= cost
            if self._engine.requests.left <= 0:
                yield

    # -- access

    def record_access(self, entry: AccessEntry) -> None:
        """Log an entry that a change of `access` returned."""
        kind, fields = set_record(entry)
        self._record(kind, **fields)

    def record_access_removed(self, entries: tuple[AccessEntry, ...]) -> None:
        """Log the entries that a removal from `access` returned."""
        if entries and isinstance(entries[0], (User, Vhost)):
            entries = entries[:1]  # the removal of its permissions is implied
        for entry in entries:
            kind, fields = deleted_record(entry)
            self._record(kind, **fields)

    # -- exchanges and bindings

    def new_streams(
        self, vhost: VirtualHost[Queue], name: str, kind: str, arguments: Mapping[str, object]
    ) -> Generator[None, None, list[NewStream]]:
        """Make the streams that `declare_exchange` will need for a topic, and yield whenever the turn's budget is used
        up. There are none if the exchange is no topic or the declaration will be refused.
        """
        made: list[NewStream] = []
        if kind != PartitionedExchange.kind or self._engine.scarcity:
            return made
        requests, existing = self._engine.requests, vhost.exchanges.get(name)
        try:
            wanted = PartitionedExchange[Queue](name, durable=True, arguments=arguments)
            exchange = existing if isinstance(existing, PartitionedExchange) else wanted
            missing = check_new_streams(vhost, exchange, wanted.wanted, self.access)
            declaration = Declaration(durable=True, arguments=stream_arguments(exchange.arguments))
            for partition in missing:
                options = made[-1].queue.declared if made else None  # all of them have the same
                made.append(self._new_stream(vhost, exchange, partition, declaration, options))
                requests.left -= DECLARED
                if requests.left <= 0:
                    yield
        except BrokerError:
            return made
        except GeneratorExit:
            for stream in made:
                stream.queue.retire()
            raise
        return made

    def _new_stream(
        self,
        vhost: VirtualHost[Queue],
        exchange: PartitionedExchange[Queue],
        partition: int,
        declaration: Declaration,
        options: QueueOptions | None,
    ) -> NewStream:
        queue = self._make_queue(vhost, exchange.stream_name(partition), self._next_queue, declaration, None, options)
        self._next_queue += 1
        binding = Binding(exchange, queue, str(partition), NO_ARGUMENTS)
        declared, bound = encode_change(**queue_fields(queue)), encode_change(**binding_fields(vhost.name, binding))
        return NewStream(queue, declared, bound)

    def declare_exchange(
        self, vhost: VirtualHost[Queue], name: str, kind: str, *, streams: Sequence[NewStream] = (), **flags: Any
    ) -> None:
        """Keyword arguments and errors are those of `VirtualHost.declare_exchange`. A topic gets its streams, and more
        of them if it has fewer than are wanted now. Those of `streams` that fit are used, and the others forgotten.

        Raises LIMIT_EXCEEDED, too, for a new exchange while memory or disk space is scarce, and PRECONDITION_FAILED if
        the streams of a topic cannot be declared.
        """
        try:
            self._declare_exchange(vhost, name, kind, streams, flags)
        finally:
            for stream in streams:
                if vhost.queues.get(stream.queue.name) is not stream.queue:
                    stream.queue.retire()

    def _declare_exchange(
        self, vhost: VirtualHost[Queue], name: str, kind: str, streams: Sequence[NewStream], flags: dict[str, Any]
    ) -> None:
        if name not in vhost.exchanges and not flags.get("passive"):
            check_growth(self._engine.scarcity, f"exchange '{name}' in vhost '{vhost.name}'")
            if kind == PartitionedExchange.kind:
                new: PartitionedExchange[Queue] = PartitionedExchange(name, **_without_passive(flags))
                check_new_streams(vhost, new, new.wanted, self.access)
        exchange = vhost.declare_exchange(name, kind, **flags)
        if exchange is not None and exchange.durable:
            self._record(Kind.EXCHANGE_DECLARED, **exchange_fields(vhost.name, exchange))
        found = vhost.exchanges[name]
        if isinstance(found, PartitionedExchange) and not flags.get("passive"):
            given = flags.get("arguments", NO_ARGUMENTS)
            if exchange is not None or PARTITIONS_ARGUMENT in given:
                wanted = PartitionedExchange[Queue](name, **_without_passive(flags)).wanted
                self._add_streams(vhost, found, wanted, {stream.queue.name: stream for stream in streams})

    def _add_streams(
        self, vhost: VirtualHost[Queue], exchange: PartitionedExchange[Queue], wanted: int, made: dict[str, NewStream]
    ) -> None:
        """Declare and bind the streams that a topic needs to have `wanted` partitions. They become durable in one step,
        since everything that one call appends to the log is in one frame.
        """
        missing = check_new_streams(vhost, exchange, wanted, self.access)
        if missing:
            check_growth(self._engine.scarcity, f"partitions of topic '{exchange.name}' in vhost '{vhost.name}'")
        declaration = Declaration(durable=True, arguments=stream_arguments(exchange.arguments))
        self.stream_changes += bool(missing)
        for partition in missing:
            stream = made.pop(exchange.stream_name(partition), None)
            if stream is None or stream.queue.arguments != declaration.arguments:
                stream = self._new_stream(vhost, exchange, partition, declaration, None)
            queue = stream.queue
            vhost.add_queue(queue)
            vhost.bind_queue(exchange.name, queue.name, str(partition))
            self._engine.log.append(Kind.QUEUE_DECLARED, stream.declared)
            self._engine.log.append(Kind.BOUND, stream.bound)
            note_in(self._engine.watches, queue)

    def delete_exchange(self, vhost: VirtualHost[Queue], name: str, *, if_unused: bool = False) -> None:
        """Errors are those of `VirtualHost.delete_exchange`. A topic's streams are deleted with it. Many bindings are
        removed, and the messages and consumers of streams follow, in later turns.
        """
        exchange = vhost.exchanges.get(name)
        streams = list(exchange.streams) if isinstance(exchange, PartitionedExchange) else []
        self._note_removal(vhost, vhost.delete_exchange(name, if_unused=if_unused and not streams))
        self._engine.settlements.flush()
        for stream in streams:  # in one call, so that their records become durable together
            self._remove_queue(stream)
        if streams:
            self._engine.left_over.begin(emptying(self._engine, streams))

    def bind_queue(
        self,
        vhost: VirtualHost[Queue],
        source: str,
        queue: str,
        key: str,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        """Errors are those of `VirtualHost.bind_queue`, and LIMIT_EXCEEDED while memory or disk space is scarce."""
        self._check_binding(vhost, source, queue, key, arguments, to_exchange=False)
        self._record_binding(vhost, vhost.bind_queue(source, queue, key, arguments))

    def bind_exchange(
        self,
        vhost: VirtualHost[Queue],
        source: str,
        destination: str,
        key: str,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        """Errors are those of `VirtualHost.bind_exchange`, and LIMIT_EXCEEDED while memory or disk space is scarce."""
        self._check_binding(vhost, source, destination, key, arguments, to_exchange=True)
        self._record_binding(vhost, vhost.bind_exchange(source, destination, key, arguments))

    def unbind_queue(
        self,
        vhost: VirtualHost[Queue],
        source: str,
        queue: str,
        key: str,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        """Errors are those of `VirtualHost.unbind_queue`."""
        self._record_unbinding(vhost, vhost.unbind_queue(source, queue, key, arguments))

    def unbind_exchange(
        self,
        vhost: VirtualHost[Queue],
        source: str,
        destination: str,
        key: str,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        """Errors are those of `VirtualHost.unbind_exchange`."""
        self._record_unbinding(vhost, vhost.unbind_exchange(source, destination, key, arguments))

    def _check_binding(
        self,
        vhost: VirtualHost[Queue],
        source: str,
        name: str,
        key: str,
        arguments: Mapping[str, object],
        *,
        to_exchange: bool,
    ) -> None:
        if self._engine.scarcity and not vhost.is_bound(source, name, key, arguments, to_exchange=to_exchange):
            check_growth(self._engine.scarcity, f"binding of '{name}' to exchange '{source}' in vhost '{vhost.name}'")

    # -- queues

    def declare_queue(
        self,
        vhost: VirtualHost[Queue],
        name: str,
        declaration: Declaration,
        session: Session,
        *,
        generated: bool = False,
    ) -> Queue:
        """Return the queue, created if it did not exist; `generated` says that `fresh_queue_name` made the name.

        Raises RESOURCE_LOCKED (EXC-2), PRECONDITION_FAILED if the existing queue differs or an argument is invalid, and
        ACCESS_REFUSED for reserved names, and LIMIT_EXCEEDED for a new queue while memory or disk space is scarce.
        """
        existing = vhost.queues.get(name)
        if existing is not None:
            self._engine.counters.queues_declared += 1
            existing.check_access(session)
            check_queue_equivalent(vhost.name, name, existing, declaration)
            existing.lifetime.touch()
            existing.refresh()  # so that messages beyond its limits do not count
            return existing
        check_growth(self._engine.scarcity, f"queue '{name}' in vhost '{vhost.name}'")
        self.access.check_queues(vhost.name, name, len(vhost.queues))
        if not generated:
            vhost.check_queue_name(name)
        queue = self._make_queue(vhost, name, self._next_queue, declaration, session if declaration.exclusive else None)
        self._next_queue += 1
        vhost.add_queue(queue)
        self._engine.counters.queues_declared += 1
        self._engine.counters.queues_created += 1
        if declaration.exclusive:
            session.exclusive[queue] = None
        if queue.durable:
            self._record(Kind.QUEUE_DECLARED, **queue_fields(queue))
        note_in(self._engine.watches, queue)
        return queue

    def _make_queue(
        self,
        vhost: VirtualHost[Queue],
        name: str,
        ident: int,
        declaration: Declaration,
        owner: Session | None,
        options: QueueOptions | None = None,
    ) -> Queue:
        """`options` are those of the declaration, if they are known."""
        durable, exclusive, auto_delete, arguments = declaration
        options = options or queue_options(
            vhost.name, name, arguments, durable=durable, exclusive=exclusive, auto_delete=auto_delete
        )
        make = StreamQueue if options.queue_type == "stream" else Queue
        queue = make(
            self._engine,
            self.delete_queue,
            ident,
            vhost.name,
            name,
            options,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=dict(arguments),
            owner=owner,
        )
        queue.admits = filter_of(arguments, self._engine.admissions)
        if not vhost.restoring:
            self.policies.declared(queue)
        return queue

    def make_hidden_queue(self, vhost: VirtualHost[Queue], name: str, purpose: str) -> Queue:
        """Create the hidden queue of that name. Raises LIMIT_EXCEEDED while memory or disk space is scarce."""
        check_growth(self._engine.scarcity, f"the queue for {purpose} in vhost '{vhost.name}'")
        queue = vhost.hidden[name] = self.hidden[name](vhost, self._next_queue)
        self._next_queue += 1
        self._record(Kind.QUEUE_DECLARED, **queue_fields(queue))
        note_in(self._engine.watches, queue)
        return queue

    def fresh_queue_name(self, vhost: VirtualHost[Queue]) -> str:
        """Return a name for a queue that a client declares without one (`amq.gen-…`)."""
        while True:
            name = "amq.gen-" + urlsafe_b64encode(self._random.randbytes(16)).rstrip(b"=").decode()
            if name not in vhost.queues:
                return name

    def delete_queue(self, queue: Queue, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue with its bindings and consumers, and return the number of its messages. Many bindings are
        removed, and many consumers told, in later turns.

        Raises PRECONDITION_FAILED if it has consumers or messages and the flags forbid that, and for a stream of a
        topic. As in RabbitMQ, unacknowledged messages do not count, because clients delete a queue this way just after
        they have read it.
        """
        where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        queue.refresh()
        if if_unused and queue.consumers:
            raise BrokerError(Condition.PRECONDITION_FAILED, f"{where} in use")
        if if_empty and (queue.ready or queue.unsynced or any(map(len, queue.reservations.values()))):
            raise BrokerError(Condition.PRECONDITION_FAILED, f"{where} not empty")
        check_not_partition(self.vhosts[queue.vhost], queue)
        return self._delete_queue(queue)

    def _delete_queue(self, queue: Queue) -> int:
        self._engine.settlements.flush()
        count = queue.ready
        self._remove_queue(queue)
        withdraw(self._engine, queue)
        if queue.consumers or queue.browsers:
            self._engine.left_over.begin(cancelling(self._engine, queue))
        return count

    def _remove_queue(self, queue: Queue) -> None:
        """Delete a queue, apart from its messages and consumers: its name is free, and nothing is routed to it."""
        vhost = self.vhosts[queue.vhost]
        self._engine.requests.left -= DELETED
        queue.change()
        queue.retire()
        self._engine.counters.queue_deleted(queue)
        for drop in self._at_queue_deletion:
            drop(queue)
        if queue.owner is not None:
            queue.owner.exclusive.pop(queue, None)
        removal = vhost.remove_queue(queue.name)
        if queue.durable:
            self._record(Kind.QUEUE_DELETED, id=queue.ident, vhost=queue.vhost, name=queue.name)
        self._note_removal(vhost, removal)

    def purge(self, queue: Queue) -> int:
        """Remove all ready messages of `queue` and return their number. Unacknowledged messages stay."""
        if queue.limited or queue.unsynced:
            queue.refresh()
        count = queue.ready
        count_left(queue, Outcome.PURGED, count)
        queue.change()
        self._engine.removals.withdraw(queue, queue.order.withdraw(), Outcome.PURGED)
        queue.bytes = 0
        return count

    def end_session(self, session: Session) -> None:
        """Delete the exclusive queues of a connection that ended (EXC-1). Many of them are deleted in later turns."""
        self._engine.requests.admit()
        self._engine.left_over.begin(self.ending(session))

    def ending(self, session: Session) -> Iterator[None]:
        """Do `end_session`, and yield whenever the turn's budget is used up."""
        requests = self._engine.requests
        while session.exclusive:
            queue, _ = session.exclusive.popitem()
            self.delete_queue(queue)
            if requests.left <= 0:
                yield

    # -- records

    def _record(self, kind: Kind, /, **fields: Any) -> None:
        self._engine.log.append(kind, encode_change(**fields))

    def _record_binding(self, vhost: VirtualHost[Queue], binding: Binding[Queue] | None) -> None:
        if binding is None:
            return
        source = binding.source
        if binding.durable:
            self._record(Kind.BOUND, **binding_fields(vhost.name, binding))
        elif source.hides(binding) and not source.bound_transiently:
            source.bound_transiently = True
            self._record(Kind.TRANSIENT_BOUND, vhost=vhost.name, name=source.name)

    def _record_unbinding(self, vhost: VirtualHost[Queue], removal: Removal[Queue]) -> None:
        """Record the removal of a binding, the first one of `removal`, and of others because of it."""
        self._note_removal(vhost, removal)
        for binding in removal.bindings[:1]:
            if binding.durable and binding.source not in removal.exchanges:
                self._record(Kind.UNBOUND, **binding_fields(vhost.name, binding))

    def _note_removal(self, vhost: VirtualHost[Queue], removal: Removal[Queue]) -> None:
        """Record that exchanges were deleted, which implies their bindings, and let the rest of the bindings follow."""
        self._engine.requests.left -= len(removal.bindings)
        self._record_deleted(vhost, removal)
        if vhost.unbinding and vhost not in self._unbinding:
            self._unbinding[vhost] = None
            self._engine.left_over.begin(self._unbind_rest(vhost))

    def _record_deleted(self, vhost: VirtualHost[Queue], removal: Removal[Queue]) -> None:
        self._engine.requests.left -= DELETED * len(removal.exchanges)
        if self.vhosts.get(vhost.name) is vhost:
            for exchange in removal.exchanges:
                if exchange.durable:
                    self._record(Kind.EXCHANGE_DELETED, vhost=vhost.name, name=exchange.name)

    def _unbind_rest(self, vhost: VirtualHost[Queue]) -> Iterator[None]:
        """Remove the bindings of deleted queues and exchanges, in pieces."""
        requests = self._engine.requests
        while vhost.unbinding:
            requests.left -= vhost.unbinding.most
            if requests.left <= 0:
                yield
            self._record_deleted(vhost, vhost.unbinding.piece())
        del self._unbinding[vhost]

    def counters(self) -> dict[str, int]:
        """Return the numbers that must not be assigned twice, for a snapshot."""
        return {"next_queue": self._next_queue}

    def durable_queues(self) -> Iterator[Queue]:
        """Return the queues that a restart restores."""
        for vhost in self.vhosts.values():
            for queue in vhost.every_queue():
                if queue.durable:
                    yield queue

    def topology_records(self, queues: Iterable[Queue]) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Return the records that rebuild every durable name, for a snapshot. `queues` are the durable queues.

        The call copies only lists. The records are made when they are iterated, from objects that never change.
        """
        access = list(map(set_record, self.access.entries()))
        exchanges = [(vhost.name, list(vhost.exchanges.values())) for vhost in self.vhosts.values()]
        bindings = [(vhost.name, list(vhost.bindings())) for vhost in self.vhosts.values()]
        transient = [
            (Kind.TRANSIENT_BOUND, {"vhost": vhost, "name": exchange.name})
            for vhost, some in exchanges
            for exchange in some
            if exchange.bound_transiently  # which may change while the snapshot is written
        ]
        return chain(access, self.policies.records(), topology_records(exchanges, queues, bindings), transient)

    def restore(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Apply a record of this kind at recovery."""
        if kind is Kind.COUNTERS:
            self._next_queue = fields["next_queue"]
        elif kind is Kind.VHOST_SET:
            self.access.put(vhost_of(fields))
            if fields["name"] not in self.vhosts:
                self.vhosts[fields["name"]] = VirtualHost(fields["name"])
                self.vhosts[fields["name"]].restoring = True
        elif kind is Kind.VHOST_DELETED:
            self.access.remove_vhost(fields["name"])
            self.policies.forget_vhost(fields["name"])
            del self.vhosts[fields["name"]]
        elif kind in ACCESS_KINDS:
            restore_access(self.access, kind, fields)
        elif kind in POLICY_KINDS:
            self.policies.restore(kind, fields)
        else:
            self._restore_in(self.vhosts[fields.pop("vhost")], kind, fields)

    def _restore_in(self, vhost: VirtualHost[Queue], kind: Kind, fields: dict[str, Any]) -> None:
        match kind:
            case Kind.QUEUE_DECLARED:
                ident = fields["id"]
                self._next_queue = max(self._next_queue, ident + 1)
                if fields["name"] in self.hidden:
                    vhost.hidden[fields["name"]] = self.hidden[fields["name"]](vhost, ident)
                    return
                declaration = Declaration(True, False, fields["auto_delete"], fields["arguments"])
                vhost.add_queue(self._make_queue(vhost, fields["name"], ident, declaration, None))
            case _:
                restore(vhost, kind, fields)

    def end_restore(self) -> None:
        """End recovery: reserved names are refused again, and the leases of queues (`x-expires`) start from the
        beginning.
        """
        self.policies.end_restore()
        for vhost in self.vhosts.values():
            vhost.restoring = False
            for queue in vhost.queues.values():
                queue.lifetime.touch()


def _without_passive(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if name != "passive"}
