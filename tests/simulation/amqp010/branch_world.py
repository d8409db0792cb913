"""The world of branches, whose workers are sessions of AMQP 0-10, and whose calls are its commands."""

from __future__ import annotations

from typing import Final

from escrowmq.wire.endpoint import Endpoint
from tests.harness.server import AnyPort
from tests.simulation.amqp010.branch_calls import SEVERAL, SEVERAL_QUEUES, SessionCalls
from tests.simulation.amqp010.branch_worker import SessionWorker
from tests.simulation.branch_calls import WORKERS, BranchCalls
from tests.simulation.branch_world import WEIGHTS as CALLS
from tests.simulation.branch_world import BranchWorld
from tests.simulation.ledger import Violation
from tests.simulation.steps import Step

WEIGHTS: Final = CALLS | {"take": 40, "write": 40, "report": 40, "turn": 40, "work": 90, "recover": 12}
"""A session that was refused waits for the disk, so the disk is quicker."""


class SessionBranchWorld(BranchWorld):
    """Executes histories over endpoints of AMQP 0-10. Each answer is compared with the model's when it arrives. It must
    not arrive before the log is on disk as far as it says.
    """

    def _make_calls(self) -> BranchCalls:
        return SessionCalls(self)

    @property
    def sessions(self) -> list[SessionWorker]:
        """The workers."""
        return [worker for worker in self.workers if isinstance(worker, SessionWorker)]

    @property
    def unreadable(self) -> bool:
        """Whether the disk cannot be read now."""
        return self.machine.unreadable

    def began(self) -> None:
        super().began()
        self.workers = [SessionWorker(number, self.ledger) for number in range(WORKERS)]
        self.server.on_output, self.server.on_fault = self._sent, self._failed
        for worker in self.sessions:
            worker.connect(self.server)

    def _declare_more(self) -> None:
        directory, vhost = self.broker.directory, self.broker.directory.vhost("/")
        directory.declare_exchange(vhost, SEVERAL, "fanout", durable=True)
        for name in SEVERAL_QUEUES:
            directory.bind_queue(vhost, SEVERAL, name, "")

    def _sent(self, port: AnyPort, data: bytes) -> None:
        for worker in self.sessions:
            if worker.owns(port):
                worker.read(data, self.server.journal.synced_lsn)

    def _failed(self, endpoint: Endpoint, code: int | str) -> None:
        for worker in self.sessions:
            if worker.serves(endpoint):
                worker.fault = int(code)

    def rest(self) -> None:
        super().rest()
        for worker in self.sessions:
            worker.flush()
        super().rest()
        for worker in self.sessions:
            if worker.pending:
                raise Violation(f"not answered: {list(worker.pending.values())}")

    def _step(self, step: Step) -> None:
        for worker in self.sessions:
            worker.flush()
        super()._step(step)
