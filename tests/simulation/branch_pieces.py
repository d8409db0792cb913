"""Requests about branches in pieces, with the work of other clients, the disk and the operator between the pieces."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from escrowmq.core.branches.branch import State
from escrowmq.core.branches.large_effects import LargeEffects
from escrowmq.core.branches.large_requests import Request
from escrowmq.core.branches.xa import XaResult
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.broker import Broker
from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.sealed import SealedRuns
from escrowmq.journal.errors import SnapshotFailed
from tests.harness.server import SimServer
from tests.simulation.branch_model import UNREADY, Item, Model
from tests.simulation.ledger import Ledger, Violation

OTHERS: Final = (
    "publish",
    "get",
    "settle",
    "take",
    "write",
    "report",
    "sync",
    "sync",
    "snapshot",
    "rollback",
    "nothing",
)


class Pieces:
    """Carries out one request, piece by piece."""

    def __init__(
        self,
        broker: Broker,
        server: SimServer,
        model: Model,
        ledger: Ledger,
        seed: str,
        other: Callable[[str, random.Random], None],
        record: Callable[[], None],
    ) -> None:
        """`other` lets another client work; `record` saves the model for the present end of the log."""
        self._broker = broker
        self._server = server
        self._model = model
        self._ledger = ledger
        self._choose = random.Random(seed)
        self._other = other
        self._record = record

    def carry_out(self, request: Request, xid: Xid, answer: Callable[[int], str]) -> tuple[XaResult | None, str, str]:
        """Return the result, the answer, and the one that is expected: that of the model (`answer`) at the moment when
        the record was written. Raises BrokerError if a part of the log cannot be read.
        """
        engine = self._broker.engine
        before = self._states(xid)
        said, expected, end = "", "", 0
        result: XaResult | None = None
        written = False
        try:
            while True:
                engine.requests.left = 1
                begin = self._server.journal.end_lsn
                next(request)
                self._ledger.count("pieces")
                if not written and any(branch.state is not state for branch, state in before.items()):
                    written, end = True, self._server.journal.end_lsn
                    end = end if end > begin else 0
                    expected = answer(UNREADY)
                    self._record()
                self._meanwhile(written=written)
                engine.turn.end()
                self._look(end)
                self._record()
                before = before if written else self._states(xid)
        except StopIteration as stop:
            result = stop.value
            said = result.status.name
        except BrokerError as error:
            if error.condition.name == "UNAVAILABLE":
                raise
            said = error.condition.name
        if not written:
            expected = answer(0 if result is None else result.lsn)
        elif result is not None:
            self._model.returned()
            if result.lsn < end:
                raise Violation(f"a request was answered at {result.lsn}, before its record at {end} was on disk")
            self._model.ready(UNREADY, result.lsn)
        return result, said, expected

    def _look(self, end: int) -> None:
        """Check that the messages of the request are visible in all queues, or in none (TX-2).

        They may be visible before the answer, but not before the record, which ends at `end` (0: not known), is on
        disk.
        """
        queues = self._broker.directory.vhost("/").queues
        new = [name for name, items in self._model.queues.items() if self._is_next(items)]
        hidden = [name for name in new if any(isinstance(runs, SealedRuns) for _, runs, _ in queues[name].unsynced)]
        if hidden and len(hidden) < len(new):
            raise Violation(f"of the messages of one commit, those in {hidden} are not visible, but others are")
        applying = any(isinstance(holder, LargeEffects) for holder in self._broker.engine.holders)
        if 0 < end <= self._server.journal.synced_lsn and not hidden and not applying:
            self._model.ready(UNREADY, end)

    def _is_next(self, items: list[Item]) -> bool:
        """Whether messages of the request are in a queue, with none before them that waits for the disk itself."""
        for item in items:
            if item.seal > self._server.journal.synced_lsn:
                return item.seal == UNREADY
        return False

    def _states(self, xid: Xid) -> dict[XaBranch, State]:
        return {one: one.state for one in self._broker.branches.by_xid.values() if one.xid.gtrid == xid.gtrid}

    def _meanwhile(self, *, written: bool) -> None:
        what = self._choose.choice(OTHERS)
        if written and (what == "rollback" or (what == "get" and self._model.returning)):
            return
        match what:
            case "take":
                self._server.take_batch()
            case "write":
                self._server.write_batch()
            case "report":
                self._server.report_batch()
            case "snapshot":
                with suppress(SnapshotFailed):  # the disk may be full
                    self._server.write_snapshot() or self._server.begin_snapshot()
            case "sync":
                self._server.take_batch()
                self._server.write_batch()
                self._server.report_batch()
            case "nothing":
                return
            case _:
                self._other(what, self._choose)
