"""The transaction manager: one per decision log, shared by all threads of a program."""

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
"""Opens a new connection that supports PEP 249's two-phase commit, not in autocommit mode."""

_FIRST_RETRY_SECONDS: Final = 0.2
_MOST_IDLE: Final = 16


@dataclass(eq=False)
class _Participant:
    connect: Connect
    idle: list[Any] = field(default_factory=list)


class TransactionManager:
    """Commits work at several participants atomically: EscrowMQ brokers, and databases with two-phase commit drivers.

        manager = TransactionManager("shop", "decisions.db")
        manager.register("bank", lambda: psycopg.connect("dbname=bank"))
        manager.register("queue", lambda: escrowmq.client.connect("amqp://localhost/"))
        manager.recover()
        with manager.transaction("bank", "queue") as tx:
            tx["bank"].execute("UPDATE account SET balance = balance - 10 WHERE name = 'alice'")
            tx["queue"].channel().basic_publish("", "shipments", b"book")

    `name` (up to 32 letters, digits, - and _) and the log file `log` belong together: the xids of branches in doubt
    contain both, and only the manager with that name and that log completes them. The log needs a local file system.
    `participants` are registered and then recovered before the constructor returns.

    `timeout` (seconds, None for no limit) applies to a whole transaction up to its decision, `call_timeout` to each
    call of the two phases. Recovery runs every `recovery_interval` seconds. Participants that cannot be reached are not
    an error: they are asked again until they answer.

    Raises:
        ValueError: The name is invalid.
        LogInUse: Another running manager uses the log.
        LogDamaged: The log is damaged.
        LogError: The log cannot be opened.
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
        """Register a participant. `connect` opens a connection for recovery and for `transaction(name)`.

        Names (up to 48 letters, digits, - and _) are part of the xids, so a participant must keep its name while
        anything can be in doubt there.

        Raises:
            ValueError: The name is invalid.
            UsageError: The name is already registered.
        """
        check_name("participant", name, LONGEST_PARTICIPANT)
        with self._mutex:
            if name in self._participants:
                raise UsageError(f"a participant {name} is already registered")
            self._participants[name] = _Participant(connect)

    @property
    def participants(self) -> list[str]:
        """The names of the registered participants."""
        with self._mutex:
            return list(self._participants)

    # ---- transactions ----

    def transaction(
        self, *names: str, timeout: float | None = None, connections: Mapping[str, Any] | None = None
    ) -> GlobalTransaction:
        """Begin a transaction with the manager's connections for `names` and your own `connections` by participant.

        `timeout` is in seconds; None means the manager's. Errors of the drivers are raised unchanged.

        Raises:
            UsageError: A participant is unknown or named twice, or the manager is closed.
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
        """Begin a transaction that ends with the current transaction of the package `transaction`.

        The other arguments are those of `transaction`. `transaction_manager` defaults to the current thread's. Work
        with the returned transaction, and leave its outcome to `transaction.commit()`, `transaction.abort()` or `with
        transaction.manager:`.
        """
        tx = self.transaction(*names, timeout=timeout, connections=connections)
        try:
            return join(tx, transaction_manager)
        except BaseException:
            tx.rollback()
            raise

    def check_process(self) -> None:
        """Raise UsageError in a forked child: log, threads and connections belong to its parent."""
        if os.getpid() != self._process:
            raise UsageError(
                f"the transaction manager {self.name} belongs to process {self._process}; "
                "create another one in the child process, with a name and a log of its own"
            )

    def branch(self, id: BranchId, connection: Any) -> Branch:
        """Create a branch that has not begun. For `GlobalTransaction.enlist`."""
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
        """End a transaction, or leave it to recovery. Its connections are returned."""
        for branch in branches:
            branch.let_go()
        with self._mutex:
            self._live.discard(id)
        if self.log.failure is not None or any(branch.state is BranchState.UNANSWERED for branch in branches):
            self._wake.set()

    def record(self, decision: Decision) -> None:
        """Record a transaction's end: remove its decision, or keep a heuristic outcome for the operator."""
        states = set(decision.branches.values())
        try:
            if states & HEURISTIC:
                self.log.write(decision)
            elif BranchState.PREPARED not in states:
                self.log.finish(decision.gtrid)
        except LogError as error:
            logger.error("transaction %s: its heuristic outcome could not be recorded: %s", decision.gtrid, error)  # noqa: TRY400

    def _give_back(self, participant: _Participant, connection: Any, good: bool) -> None:
        with self._mutex:
            if good and not self._stop.is_set() and len(participant.idle) < _MOST_IDLE:
                participant.idle.append(connection)
                return
        with contextlib.suppress(Exception):
            connection.close()

    # ---- recovery ----

    def recover(self) -> Report:
        """Ask all participants now, and complete the branches in doubt there. Recovery also runs in the background.

        Raises:
            LogError: The log has failed and still cannot be used. Nothing is completed then.
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
            logger.warning("recovery: %s: %s; will try again later", what, why)
        return report

    def unfinished(self) -> list[Decision]:
        """Return the decisions that some participant has not acknowledged, or that an operator has completed.

        Raises:
            LogError: The log has failed.
        """
        return list(self.log.decisions().values())

    def forget(self, id: str) -> None:
        """Forget a transaction that an operator completed, in the log and at its participants (DTX-10).

        Errors of the drivers are raised unchanged.

        Raises:
            UsageError: There is no such transaction, or no operator has completed it, or a participant is not
                registered.
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
        """Run the manager's thread: recovery at intervals, and soon after a failure."""
        wait = _FIRST_RETRY_SECONDS  # soon after the start too, for branches of a manager that died
        while True:
            hurried = self._wake.wait(wait)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                complete = self.recover().complete
            except LogError as error:
                logger.warning("recovery: %s; will try again later", error)
                complete = False
            except Exception:
                logger.exception("recovery failed; will try again later")
                complete = False
            if complete:
                wait = self.recovery_interval
            else:
                wait = _FIRST_RETRY_SECONDS if hurried else min(2 * wait, self.recovery_interval)

    # ---- closing ----

    def close(self) -> None:
        """Close the log and the manager's connections. Unfinished work is left to the next manager."""
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
