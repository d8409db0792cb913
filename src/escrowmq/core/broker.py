"""The broker, which assembles the parts of the core. Protocols, the server and administration reach them through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.access.claims import Claims
from escrowmq.core.access.holdings import Holdings
from escrowmq.core.access.table import TABLE
from escrowmq.core.branches.coordinator import Coordinator
from escrowmq.core.branches.demarcation import Demarcations
from escrowmq.core.branches.large_requests import LargeRequests
from escrowmq.core.branches.registry import Registry
from escrowmq.core.branches.transactions import Transactions
from escrowmq.core.engine import RESIDENT_LIMIT, Engine
from escrowmq.core.groups.registry import Groups
from escrowmq.core.half.registry import HalfMessages
from escrowmq.core.reservations.registry import Reservations
from escrowmq.core.termini.registry import Termini
from escrowmq.core.topology.directory import Directory
from escrowmq.core.topology.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.access.table import Need, Operation
    from escrowmq.core.ports import Log, Random
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.vhost import VirtualHost


class Broker:
    """Queues, exchanges and transactions of all virtual hosts.

    `engine` publishes, delivers and settles. `directory` holds virtual hosts, exchanges, queues and bindings by name,
    `topics` those exchanges that have streams of their own. `transactions` begins and commits branches without an xid.
    `branches` holds the branches with an xid; `demarcations` associates channels with them, `coordinator` decides them,
    and `large_requests` does so in pieces. `reservations` serves bulk readers. `termini` holds the ends of AMQP 1.0
    links. `groups` serves consumer groups over streams. `half` stores and decides half messages. `claims` holds names
    that only one connection may have. `holdings` bounds the memory that clients hold. `formats` holds a reader of
    content for each number in `Envelope.protocol`, and `admissions` the filters of queues; the runtime fills both
    before recovery. `operations` are those that clients of AMQP may ask for.
    """

    def __init__(self, log: Log, random: Random, *, resident_limit: int = RESIDENT_LIMIT) -> None:
        vhosts: dict[str, VirtualHost[Queue]] = {}
        self.log = log
        self.random = random
        self.operations: Mapping[Operation, tuple[Need, ...]] = TABLE
        self.engine = Engine(log, vhosts, resident_limit)
        self.formats = self.engine.formats
        self.admissions = self.engine.admissions
        self.directory = Directory(self.engine, vhosts, random)
        self.access = self.directory.access
        self.topics = Topics(self.directory)
        self.claims = Claims()
        self.transactions = Transactions(self.engine)
        self.holdings = Holdings()
        self.branches = Registry(self.engine, self.transactions, self.holdings)
        self.demarcations = Demarcations(self.branches)
        self.coordinator = Coordinator(self.engine, self.branches, self.transactions)
        self.large_requests = LargeRequests(self.engine, self.branches, self.transactions, self.coordinator)
        self.reservations = Reservations(self.engine)
        self.termini = Termini(self.engine, self.reservations.put_back, self.holdings)
        self.half = HalfMessages(self.engine, self.directory, self.holdings)
        self.directory.before_vhost_deletion(self.coordinator.drop_vhost)
        self.groups = Groups(self.engine, random, self.holdings)
        self.directory.at_queue_deletion(self.groups.forget_queue)
        self.directory.before_vhost_deletion(self.groups.end_of_vhost)
        self.directory.before_vhost_deletion(self.termini.end_of_vhost)
