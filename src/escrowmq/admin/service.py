"""The admin service: every operation on a running broker, by name. The admin socket, for example, calls only this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.admin.audit import audited
from escrowmq.admin.authority import Authority
from escrowmq.admin.bindings import BindingAdmin
from escrowmq.admin.channels import ChannelAdmin
from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.contents import ContentAdmin
from escrowmq.admin.counters import CounterAdmin
from escrowmq.admin.declarations import DeclarationAdmin
from escrowmq.admin.definitions import DefinitionAdmin
from escrowmq.admin.delayed import DelayedAdmin
from escrowmq.admin.events import EventAdmin
from escrowmq.admin.groups import GroupAdmin
from escrowmq.admin.half import HalfAdmin
from escrowmq.admin.journal import JournalAdmin
from escrowmq.admin.links import LinkAdmin
from escrowmq.admin.logins import LoginAdmin
from escrowmq.admin.messages import MessageAdmin
from escrowmq.admin.moving import MoveAdmin
from escrowmq.admin.operation import Operation
from escrowmq.admin.permissions import PermissionAdmin
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.policies import PolicyAdmin
from escrowmq.admin.ports import BrokerProcess
from escrowmq.admin.progress import ProgressAdmin
from escrowmq.admin.proof import proven
from escrowmq.admin.queues import QueueAdmin
from escrowmq.admin.replica import CUT_OFF, ReplicaAdmin
from escrowmq.admin.reservations import ReservationAdmin
from escrowmq.admin.topics import TopicAdmin
from escrowmq.admin.topology import TopologyAdmin
from escrowmq.admin.transactions import TransactionAdmin
from escrowmq.admin.users import UserAdmin
from escrowmq.admin.vhosts import VhostAdmin


class AdminService:
    """`operations` has every operation by name; those that change something leave a line in the log.

    An operation raises OperationRefused or BrokerError with a text for the operator.
    """

    def __init__(self, process: BrokerProcess, pieces: Pieces | None = None) -> None:
        pieces = pieces or Pieces()
        self._process = process
        connections, authority = ConnectionAdmin(process, pieces), Authority(process.broker)
        self._transactions = TransactionAdmin(process, pieces)
        self._queues = QueueAdmin(process.broker, self._transactions, pieces)
        self._half = HalfAdmin(process, pieces)
        parts = (
            self._queues,
            connections,
            ChannelAdmin(process, pieces),
            UserAdmin(process, connections, pieces),
            VhostAdmin(process, connections, pieces),
            PermissionAdmin(process, connections, pieces),
            PolicyAdmin(process, pieces),
            JournalAdmin(process),
            ReplicaAdmin(process),
            EventAdmin(process),
            LoginAdmin(process),
            TopologyAdmin(process, pieces),
            DeclarationAdmin(process, authority, pieces),
            BindingAdmin(process, authority),
            DefinitionAdmin(process, pieces),
            MessageAdmin(process, authority),
            MoveAdmin(process, authority),
            CounterAdmin(process, pieces),
            ContentAdmin(process),
            DelayedAdmin(process, pieces),
            self._transactions,
            self._half,
            ReservationAdmin(process, pieces),
            LinkAdmin(process, pieces),
            TopicAdmin(process, pieces),
            GroupAdmin(process, pieces),
            ProgressAdmin(process, pieces),
        )
        found: dict[str, Operation] = {"status": self.status, "ping": self.ping, "host": self.host}
        for part in parts:
            assert found.keys().isdisjoint(part.operations), "two operations have one name"
            found |= part.operations
        self.operations: Mapping[str, Operation] = proven(audited(found, process), process)

    async def ping(self) -> str:
        """Return why the broker accepts no clients, and nothing if it does. The answer itself says that it answers."""
        return CUT_OFF if self._process.cut_off else ""

    async def host(self) -> str:
        """Return the name of the machine."""
        return self._process.host

    async def status(self) -> dict[str, Any]:
        """Return figures of the broker. Sums over queues, branches and half messages are computed in pieces, and may be
        outdated.
        """
        queues = await self._queues.totals()
        transactions = await self._transactions.summary()
        return {
            **self._process.figures(),
            "queues": queues,
            "transactions": transactions,
            "half_messages": await self._half.summary(),
            "replication": self._process.replication(),
        }
