"""A queue as a client declares it: its attributes, and the making of the queue, which gets a number of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from escrowmq.core.queues import delayed, host
from escrowmq.core.queues.admission import Admissions, filter_of
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.core.topology.arguments.queue import QueueOptions, queue_options
from escrowmq.core.topology.exchange import NO_ARGUMENTS

if TYPE_CHECKING:
    from escrowmq.core.policies.registry import Policies
    from escrowmq.core.topology.vhost import VirtualHost


class Declaration(NamedTuple):
    """The attributes of a queue as a client declares them."""

    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, object] = NO_ARGUMENTS


class MakingHost(host.Host, Protocol):
    """The part of the engine that is needed here."""

    admissions: Admissions
    delays: delayed.Delays


class QueueMaker:
    """Makes queues. A number is never assigned twice, not even after a restart."""

    def __init__(self, engine: MakingHost, policies: Policies, delete: Callable[[Queue], int]) -> None:
        """`delete` deletes a queue, for those that are deleted automatically."""
        self._engine = engine
        self._policies = policies
        self._delete = delete
        self.next_number = 1
        self.hidden: dict[str, Callable[[VirtualHost[Queue], int], Queue]] = {
            delayed.NAME: lambda vhost, ident: engine.delays.queue(delete, ident, vhost.name)
        }
        """Makes a hidden queue of a virtual host, with a number; by name."""

    def make(
        self,
        vhost: VirtualHost[Queue],
        name: str,
        declaration: Declaration,
        owner: Session | None = None,
        options: QueueOptions | None = None,
    ) -> Queue:
        """Return a new queue, which is not in `vhost` yet. `options` are those of the declaration, if they are known.

        Raises PRECONDITION_FAILED if an argument is invalid.
        """
        queue = self._make(vhost, name, self.next_number, declaration, owner, options)
        self.next_number += 1
        return queue

    def make_hidden(self, vhost: VirtualHost[Queue], name: str) -> Queue:
        """Return a new hidden queue, which is not in `vhost` yet."""
        queue = self.hidden[name](vhost, self.next_number)
        self.next_number += 1
        return queue

    def restore(self, vhost: VirtualHost[Queue], name: str, ident: int, declaration: Declaration) -> None:
        """Add a queue to `vhost` at recovery, whose number is `ident`."""
        self.next_number = max(self.next_number, ident + 1)
        if name in self.hidden:
            vhost.hidden[name] = self.hidden[name](vhost, ident)
        else:
            vhost.add_queue(self._make(vhost, name, ident, declaration, None, None))

    def _make(
        self,
        vhost: VirtualHost[Queue],
        name: str,
        ident: int,
        declaration: Declaration,
        owner: Session | None,
        options: QueueOptions | None,
    ) -> Queue:
        durable, exclusive, auto_delete, arguments = declaration
        options = options or queue_options(
            vhost.name, name, arguments, durable=durable, exclusive=exclusive, auto_delete=auto_delete
        )
        make = StreamQueue if options.queue_type == "stream" else Queue
        queue = make(
            self._engine,
            self._delete,
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
            self._policies.declared(queue)
        return queue
