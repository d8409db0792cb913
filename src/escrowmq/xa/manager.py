"""The transaction manager: one for each decision log, shared by all threads of a program."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from escrowmq.xa.branch import Branch, forget
from escrowmq.xa.calls import Callers
from escrowmq.xa.data_manager import join
from escrowmq.xa.errors import LogError, UsageError
from escrowmq.xa.log import Decision, DecisionLog
from escrowmq.xa.recovery import Answers, Report, ask, settle, unregistered
from escrowmq.xa.states import HEURISTIC, BranchState
from escrowmq.xa.transaction import GlobalTransaction
from escrowmq.xa.xids import FORMAT_ID, LONGEST_MANAGER, LONGEST_PARTICIPANT, BranchId, check_name, new_gtrid

logger = logging.getLogger("escrowmq.xa")

Connect = Callable[[], Any]
"""Makes a new connection with PEP 249's two-phase commit, not in autocommit mode."""

_FIRST_RETRY_SECONDS: Final = 0.2
_MOST_IDLE: Final = 16


@dataclass(eq=False)
class _Participant:
    connect: Connect
    idle: list[Any] = field(default_factory=list)


class TransactionManager:
    """Commits work at several participants as one: EscrowMQ brokers, and databases whose driver has two-phase commit.

        manager = TransactionManager("shop", "decisions.db")
        manager.register("bank", lambda: psycopg.connect("dbname=bank"))
        manager.register("queue", lambda: escrowmq.client.connect("amqp://localhost/"))
        manager.recover()
        with manager.transaction("bank", "queue") as tx:
            tx["bank"].execute("UPDATE account SET balance = balance - 10 WHERE name = 'alice'")
            tx["queue"].channel().basic_publish("", "shipments", b"book")

    `name` (letters, digits, - and _, at most 32) and the log `log` belong together: what is in doubt at a participant
    carries both, and only the manager with that name and that log decides about it. The log needs a local file system.
    `participants` are registered, and then recovery runs, before this returns.

    `timeout` (seconds, None for ever) is for a whole transaction up to its decision; `call_timeout` for each call of
    the two phases; every `recovery_interval` seconds all participants are asked for what is in doubt.

    Raises ValueError for a name, LogInUse, LogDamaged or LogError for the log. Participants that cannot be reached are
    no error: they are asked again until they answer.
    """

    def __init__(
        self,
        name: str,
        log: str | os.PathLike[str],
        participants: Mapping[str, Connect] | None = None,
        *,
        timeout: float | None = 60.0,
        call_timeout: float | None = 30.0,
        recovery_interval: float = 60.0,
    ) -> None:
        self.name = check_name("manager", name, LONGEST_MANAGER)
        self.timeout = timeout
        self.call_timeout = call_timeout
        self.recovery_interval = recovery_interval
        self.callers = Callers()
        self._process = os.getpid()
        self._mutex = threading.Lock()
        self._recovering = threading.Lock()
        self._participants: dict[str, _Participant] = {}
        self._live: set[str] = set()
        self._stop = threading.Event()
        self._wake = threading.Event()
        for participant, connect in (participants or {}).items():
            self.register(participant, connect)
        self.log = DecisionLog(log, name)
        if participants:
            self.recover()
        self._resolver = threading.Thread(target=self._resolve, name=f"escrowmq-xa-{name}", daemon=True)
        self._resolver.start()

    def register(self, name: str, connect: Connect) -> None:
        """Make a participant known; `connect` makes a connection for recovery and for `transaction(name)`.

        Names (letters, digits, - and _, at most 48) stand in the xids: a participant keeps its name for as long as
        anything can be in doubt there. Raises ValueError, UsageError if it is taken.
        """
        check_name("participant", name, LONGEST_PARTICIPANT)
        with self._mutex:
            if name in self._participants:
                raise UsageError(f"a participant {name} is registered already")
            self._participants[name] = _Participant(connect)

    @property
    def participants(self) -> list[str]:
        """The names of all that are registered."""
        with self._mutex:
            return list(self._participants)

    # ---- transactions ----

    def transaction(
        self, *names: str, timeout: float | None = None, connections: Mapping[str, Any] | None = None
    ) -> GlobalTransaction:
        """Begin one, with connections of the manager's for `names` and connections of yours by participant.

        `timeout` is that of the manager if None. Raises UsageError, and what a driver raises when a branch is begun.
        """
        self.check_process()
        if self._stop.is_set():
            raise UsageError(f"the transaction manager {self.name} is closed")
        gtrid = new_gtrid(self.name, self.log.identity)
        with self._mutex:
            self._live.add(gtrid)
        transaction = GlobalTransaction(self, gtrid, self.timeout if timeout is None else timeout)
        try:
            for name in names:
                transaction.enlist(name)
            for name, connection in (connections or {}).items():
                transaction.enlist(name, connection)
        except BaseException:
            with contextlib.suppress(UsageError):
                transaction.rollback()
            raise
        return transaction

    def join(
        self,
        *names: str,
        timeout: float | None = None,
        connections: Mapping[str, Any] | None = None,
        transaction_manager: Any = None,
    ) -> GlobalTransaction:
        """Begin one that ends with the current transaction of the package `transaction`; else as `transaction`.

        `transaction_manager` is the thread's own if None. Work with what this returns, and leave its outcome to
        `transaction.commit()`, `transaction.abort()` or `with transaction.manager:`.
        """
        tx = self.transaction(*names, timeout=timeout, connections=connections)
        try:
            return join(tx, transaction_manager)
        except BaseException:
            tx.rollback()
            raise

    def check_process(self) -> None:
        """Raises UsageError in a forked child: log, threads and connections are its parent's."""
        if os.getpid() != self._process:
            raise UsageError(
                f"the transaction manager {self.name} belongs to process {self._process}; "
                "a child needs one of its own, with a name and a log of its own"
            )

    def branch(self, id: BranchId, connection: Any) -> Branch:
        """For `GlobalTransaction.enlist`: a branch that has not begun."""
        name = id.participant
        with self._mutex:
            participant = self._participants.get(name)
            idle = (
                participant.idle.pop() if participant is not None and connection is None and participant.idle else None
            )
        if participant is None:
            raise UsageError(f"no participant {name!r} is registered; known: {', '.join(self.participants) or 'none'}")
        if connection is not None:
            return Branch(name, id, connection, lambda _good: None)
        connection = idle if idle is not None else participant.connect()
        return Branch(name, id, connection, partial(self._give_back, participant, connection))

    def leave(self, id: str, branches: Sequence[Branch]) -> None:
        """A transaction is over, or left to recovery; its connections come back."""
        for branch in branches:
            branch.let_go()
        with self._mutex:
            self._live.discard(id)
        if self.log.failure is not None or any(branch.state is BranchState.UNANSWERED for branch in branches):
            self._wake.set()

    def record(self, decision: Decision) -> None:
        """How a transaction ended: nothing remains to be known of it, or what a person has to look at is kept."""
        states = set(decision.branches.values())
        try:
            if states & HEURISTIC:
                self.log.write(decision)
            elif BranchState.PREPARED not in states:
                self.log.finish(decision.gtrid)
        except LogError as error:
            logger.error("transaction %s: its outcome by hand is not kept: %s", decision.gtrid, error)  # noqa: TRY400

    def _give_back(self, participant: _Participant, connection: Any, good: bool) -> None:
        with self._mutex:
            if good and not self._stop.is_set() and len(participant.idle) < _MOST_IDLE:
                participant.idle.append(connection)
                return
        with contextlib.suppress(Exception):
            connection.close()

    # ---- recovery ----

    def recover(self) -> Report:
        """Ask all participants now, and complete what is in doubt there. It also runs by itself.

        Raises LogError when the log has failed and still cannot be used; nothing is completed then.
        """
        self.check_process()
        with self._recovering:
            self.log.reopen()
            with self._mutex:
                known = {name: participant.connect for name, participant in self._participants.items()}
            decisions = self.log.decisions()
            with self._mutex:
                before = {gtrid: made for gtrid, made in decisions.items() if gtrid not in self._live}
            report = Report(unresolved=unregistered(before, known))
            functions = [partial(ask, name, connect, self.log, self._lives, before) for name, connect in known.items()]
            answers: dict[str, Answers] = {}
            for name, answer in zip(known, self.callers.run(functions, self.call_timeout), strict=True):
                if isinstance(answer, Answers):
                    answers[name] = answer
                else:
                    report.unreachable[name] = " ".join(str(answer).split()) or type(answer).__name__
            settle(self.log, before, answers, report)
        for line in str(report).splitlines() if report.committed or report.rolled_back or report.heuristic else []:
            logger.info("recovery: %s", line)
        for what, why in {**report.unreachable, **report.unresolved}.items():
            logger.warning("recovery: %s: %s; tried again later", what, why)
        return report

    def unfinished(self) -> list[Decision]:
        """Decided, and not acknowledged by all, or completed by hand. Raises LogError when the log has failed."""
        return list(self.log.decisions().values())

    def forget(self, id: str) -> None:
        """Drop what is known of a transaction that was completed by hand, here and at its participants (DTX-10).

        Raises UsageError if there is no such transaction, or nothing was done to it by hand; whatever a driver raises.
        """
        self.check_process()
        decision = self.log.get(id)
        if decision is None or not HEURISTIC & set(decision.branches.values()):
            raise UsageError(f"the log has no transaction {id} that was completed by hand")
        for bqual, state in decision.branches.items():
            with self._mutex:
                participant = self._participants.get(BranchId(id, bqual).participant)
            if state in HEURISTIC:
                if participant is None:
                    raise UsageError(f"the participant of {bqual} is not registered")
                with contextlib.closing(participant.connect()) as connection:
                    forget(connection, connection.xid(FORMAT_ID, id, bqual))
        self.log.finish(id)

    def _lives(self, id: str) -> bool:
        with self._mutex:
            return id in self._live

    def _resolve(self) -> None:
        """The thread of the manager: recovery from time to time, and soon after something went wrong."""
        wait = _FIRST_RETRY_SECONDS  # soon after the start, too, for what a dead predecessor had under way
        while True:
            hurried = self._wake.wait(wait)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                complete = self.recover().complete
            except LogError as error:
                logger.warning("recovery: %s; tried again later", error)
                complete = False
            except Exception:
                logger.exception("recovery failed; tried again later")
                complete = False
            if complete:
                wait = self.recovery_interval
            else:
                wait = _FIRST_RETRY_SECONDS if hurried else min(2 * wait, self.recovery_interval)

    # ---- the end ----

    def close(self) -> None:
        """Close the log and the manager's connections; what is still open is left to the next manager."""
        if self._stop.is_set() or os.getpid() != self._process:
            return
        self._stop.set()
        self._wake.set()
        self._resolver.join(self.call_timeout)
        with self._mutex:
            idle = [connection for participant in self._participants.values() for connection in participant.idle]
            for participant in self._participants.values():
                participant.idle.clear()
        for connection in idle:
            with contextlib.suppress(Exception):
                connection.close()
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
