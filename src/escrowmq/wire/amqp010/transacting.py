"""The transactions of one session: the local one of the class `tx`, or its work for branches in the class `dtx`.

A session has one of the two modes, or none, for as long as it lives. In each, `SessionPort.branch` is the branch to
which the session's messages and acceptances belong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.branches.watch import Watch
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010.codec.spec import ErrorCode
from escrowmq.wire.demarcation import Demarcation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.wire.amqp010.ports import SessionPort
    from escrowmq.wire.outbox import Piece


class Transacting:
    """The mode of a session (`ports.SessionPart`)."""

    def __init__(self, session: SessionPort) -> None:
        self._session = session
        self._demarcation: Demarcation | None = None
        self._local = False
        self.watch = Watch(session.broker.engine.deadlines, session.limits.transaction.age, self._too_old)
        self.committing: Iterator[None] | None = None
        """The rest of a large commit whose record is written."""

    # -- modes

    def select_local(self) -> None:
        """Begin a local transaction (TX-1). A new branch follows each branch that ends (TX-12).

        Raises ILLEGAL_STATE if the session has a mode already (rules exactly-once and no-dtx).
        """
        session = self._session
        if self._local or self._demarcation is not None:
            mode = "tx" if self._local else "dtx"
            raise BrokerError(Condition.ILLEGAL_STATE, f"{mode}.select was already sent on this session")
        self._local = True
        session.branch = session.broker.transactions.begin(session.limits.transaction, self.watch)
        session.branch.holding = session.broker.holdings.begin(session.user, session.vhost.name)

    def select_distributed(self) -> None:
        """Let the session work for branches (DTX-1). Raises ILLEGAL_STATE if it has a local transaction."""
        session = self._session
        if self._local:
            raise BrokerError(Condition.ILLEGAL_STATE, "tx.select was already sent on this session")
        if self._demarcation is None:
            owner = f"{session.user} from {session.label}"
            self._demarcation = Demarcation(session, session.limits.transaction, session.user, owner)

    @property
    def local(self) -> TransactionBranch:
        """The local transaction. Raises ILLEGAL_STATE without `tx.select` (rule select-required)."""
        branch = self._session.branch
        if not self._local or branch is None:
            raise BrokerError(Condition.ILLEGAL_STATE, "no tx.select on this session")
        return branch

    @property
    def demarcation(self) -> Demarcation:
        """The session as a worker for branches. Raises COMMAND_INVALID without `dtx.select`."""
        if self._demarcation is None:
            raise BrokerError(Condition.COMMAND_INVALID, "no dtx.select on this session")
        return self._demarcation

    def _too_old(self) -> None:
        """Roll back a local transaction that is too old, and end the session (TX-13)."""
        session = self._session
        age = session.limits.transaction.age // 1000
        session.broker.transactions.expire(self.local)
        session.branch = None
        text = f"transaction is older than {age} s, the configured limit"
        session.end(ErrorCode.RESOURCE_LIMIT_EXCEEDED, text)

    # -- ports.SessionPart

    @property
    def lasting(self) -> bool:
        """Whether the session has no mode. The work of a lost connection is rolled back (TX-10, DTX-7), and a client
        that went on with the session would commit the rest of it.
        """
        return not self._local and self._demarcation is None

    def attached(self) -> None:
        """Do nothing: only a session without a mode is kept."""

    def sent_again(self, first: int, most: int) -> list[tuple[int, list[Piece]]]:
        """Return nothing: no command is sent to the client."""
        return []

    def caught_up(self) -> None:
        """Do nothing: nothing is delivered here."""

    @property
    def counted_bytes(self) -> int:
        """Nothing: the branch counts its own memory."""
        return 0

    def flush(self) -> None:
        """Do nothing: no work is put off."""

    def completed(self, first: int, last: int) -> None:
        """Do nothing: no command is sent to the client."""

    def note_ages(self, now_ms: int) -> None:
        """Do nothing: no deliveries are held here."""

    def dropping_forbidden(self) -> Iterator[None]:
        """Do nothing: rights are checked when an outcome is asked for."""
        return iter(())

    def leave(self) -> None:
        """Do nothing yet: consumers are detached first."""

    def leaving(self) -> Iterator[None]:
        """Do nothing yet: consumers are detached first."""
        return iter(())

    def returning(self) -> Iterator[None]:
        """Roll back what is not prepared or committed (TX-4, DTX-7). A commit that has begun is carried through."""
        session = self._session
        broker = session.broker
        if self._demarcation is not None:
            self._demarcation.leave()
            self._demarcation = None
        elif session.branch is not None:
            broker.transactions.abandon(session.branch)
            session.branch = None
        if self.committing is not None:
            broker.engine.left_over.add(self.committing)
            self.committing = None
        self.watch.close()
        return iter(())

    def row(self) -> dict[str, object]:
        """Return whether the session has a local transaction, for lists of channels."""
        return {"transactional": self._local}
