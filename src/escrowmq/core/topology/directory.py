"""The names of the broker: virtual hosts, exchanges, queues, bindings. Each change of a durable one has a record."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from escrowmq.core.access.access import Access
from escrowmq.core.access.permissions import Entry as AccessEntry
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.counters import BrokerCounters, count_left
from escrowmq.core.policies.registry import Policies
from escrowmq.core.queues import delayed
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.declaration import Declaration, MakingHost, QueueMaker
from escrowmq.core.topology.deletion import DeletionHost, QueueDeletion, check_unneeded
from escrowmq.core.topology.equivalence import check_queue_equivalent
from escrowmq.core.topology.exchange import NO_ARGUMENTS
from escrowmq.core.topology.exchanges.partitioned import PARTITIONS_ARGUMENT, PartitionedExchange
from escrowmq.core.topology.partitions import (
    NewStream,
    StreamsHost,
    TopicStreams,
    check_new_streams,
    check_not_partition,
)
from escrowmq.core.topology.recording import Recording, RecordingHost
from escrowmq.core.topology.recovery import FoundNames, name_records
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.core.watch import note_in

if TYPE_CHECKING:
    from escrowmq.core.ports import Random


class Host(MakingHost, RecordingHost, StreamsHost, DeletionHost, Protocol):
    """The operations that the directory needs from the engine."""

    counters: BrokerCounters


class Directory:
    """The part of the broker that knows names. Changes act at once (TX-9); changes of durable names are logged."""

    def __init__(self, engine: Host, vhosts: dict[str, VirtualHost[Queue]], random: Random) -> None:
        """`vhosts` contains the virtual hosts; `random` makes names that cannot be guessed."""
        self.vhosts = vhosts
        self.access = Access()
        self.policies = Policies(engine, vhosts)
        self._engine = engine
        self._random = random
        self._maker = QueueMaker(engine, self.policies, self.delete_queue)
        self._recording = Recording(engine, vhosts)
        self._deletion = QueueDeletion(engine, vhosts, self._recording)
        self._streams = TopicStreams(engine, self.access, self._maker)
        self._found = FoundNames(vhosts, self.access, self.policies, self._maker)
        self.hidden = self._maker.hidden
        engine.delays.make = lambda vhost: self.make_hidden_queue(vhost, delayed.NAME, "delayed messages")
        self._before_vhost_deletion: list[Callable[[str], None]] = []

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
        self._deletion.observers.append(drop)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with everything in it, including permissions, branches and progress. Raises
        NOT_FOUND.
        """
        vhost = self.vhost(name)
        for drop in self._before_vhost_deletion:
            drop(name)
        for queue in vhost.every_queue():
            self._deletion.delete(queue)
        del self.vhosts[name]
        self.policies.forget_vhost(name)
        self._engine.counters.vhost_deleted(name)
        self.record_access_removed(self.access.remove_vhost(name))
        self._recording.dismantle(vhost)

    # -- access

    def record_access(self, entry: AccessEntry) -> None:
        """Log an entry that a change of `access` returned."""
        self._recording.access_set(entry)

    def record_access_removed(self, entries: tuple[AccessEntry, ...]) -> None:
        """Log the entries that a removal from `access` returned."""
        self._recording.access_removed(entries)

    # -- exchanges and bindings

    def new_streams(
        self, vhost: VirtualHost[Queue], name: str, kind: str, arguments: Mapping[str, object]
    ) -> Generator[None, None, list[NewStream]]:
        """Make the streams that `declare_exchange` will need for a topic, and yield whenever the turn's budget is used
        up. There are none if the exchange is no topic or the declaration will be refused.
        """
        return self._streams.new(vhost, name, kind, arguments)

    @property
    def stream_changes(self) -> int:
        """How often topics got streams."""
        return self._streams.changes

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
            self._recording.exchange_declared(vhost, exchange)
        found = vhost.exchanges[name]
        if isinstance(found, PartitionedExchange) and not flags.get("passive"):
            given = flags.get("arguments", NO_ARGUMENTS)
            if exchange is not None or PARTITIONS_ARGUMENT in given:
                wanted = PartitionedExchange[Queue](name, **_without_passive(flags)).wanted
                self._streams.add(vhost, found, wanted, {stream.queue.name: stream for stream in streams})

    def delete_exchange(self, vhost: VirtualHost[Queue], name: str, *, if_unused: bool = False) -> None:
        """Errors are those of `VirtualHost.delete_exchange`. A topic's streams are deleted with it. Many bindings are
        removed, and the messages and consumers of streams follow, in later turns.
        """
        exchange = vhost.exchanges.get(name)
        streams = list(exchange.streams) if isinstance(exchange, PartitionedExchange) else []
        self._recording.removed(vhost, vhost.delete_exchange(name, if_unused=if_unused and not streams))
        self._deletion.delete_streams(streams)

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
        self._recording.bound(vhost, vhost.bind_queue(source, queue, key, arguments))

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
        self._recording.bound(vhost, vhost.bind_exchange(source, destination, key, arguments))

    def unbind_queue(
        self,
        vhost: VirtualHost[Queue],
        source: str,
        queue: str,
        key: str,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        """Errors are those of `VirtualHost.unbind_queue`."""
        self._recording.unbound(vhost, vhost.unbind_queue(source, queue, key, arguments))

    def unbind_exchange(
        self,
        vhost: VirtualHost[Queue],
        source: str,
        destination: str,
        key: str,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        """Errors are those of `VirtualHost.unbind_exchange`."""
        self._recording.unbound(vhost, vhost.unbind_exchange(source, destination, key, arguments))

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
        queue = self._maker.make(vhost, name, declaration, session if declaration.exclusive else None)
        vhost.add_queue(queue)
        self._engine.counters.queues_declared += 1
        self._engine.counters.queues_created += 1
        if declaration.exclusive:
            session.exclusive[queue] = None
        if queue.durable:
            self._recording.queue_declared(queue)
        note_in(self._engine.watches, queue)
        return queue

    def make_hidden_queue(self, vhost: VirtualHost[Queue], name: str, purpose: str) -> Queue:
        """Create the hidden queue of that name. Raises LIMIT_EXCEEDED while memory or disk space is scarce."""
        check_growth(self._engine.scarcity, f"the queue for {purpose} in vhost '{vhost.name}'")
        queue = vhost.hidden[name] = self._maker.make_hidden(vhost, name)
        self._recording.queue_declared(queue)
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

        Raises PRECONDITION_FAILED as `check_unneeded` does, and for a stream of a topic.
        """
        queue.refresh()
        check_unneeded(queue, if_unused=if_unused, if_empty=if_empty)
        check_not_partition(self.vhosts[queue.vhost], queue)
        return self._deletion.delete(queue)

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

    # -- snapshots and recovery

    def counters(self) -> dict[str, int]:
        """Return the numbers that must not be assigned twice, for a snapshot."""
        return {"next_queue": self._maker.next_number}

    def durable_queues(self) -> Iterator[Queue]:
        """Return the queues that a restart restores."""
        for vhost in self.vhosts.values():
            for queue in vhost.every_queue():
                if queue.durable:
                    yield queue

    def topology_records(self, queues: Iterable[Queue]) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Return the records that rebuild every durable name, for a snapshot. `queues` are the durable queues."""
        return name_records(self.vhosts, self.access, self.policies, queues)

    def restore(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Apply a record of this kind at recovery."""
        self._found.apply(kind, fields)

    def end_restore(self) -> None:
        """End recovery: reserved names are refused again, and the leases of queues (`x-expires`) start from the
        beginning.
        """
        self._found.finish()


def _without_passive(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if name != "passive"}
