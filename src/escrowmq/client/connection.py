"""The connection that applications use: PEP 249's two-phase commit; pika's names for everything else."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from escrowmq.client import errors
from escrowmq.client.channel import Channel
from escrowmq.client.channel_base import DEFAULT, ChannelBase, Timeout
from escrowmq.client.errors import Returned, RolledBack
from escrowmq.client.link import Link
from escrowmq.client.parameters import Parameters, parameters
from escrowmq.client.tpc import State, TwoPhase
from escrowmq.client.xids import as_xid, make_xid
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import method_frame

ROUND_SECONDS: Final = 0.02, 0.1
"""The shortest and the longest pause after all of several brokers have refused. In between, it is a tenth of the time
so far. A take-over lasts some tenths of a second.
"""
ATTEMPT_SECONDS: Final = 1.0
"""How long each of several brokers has to accept a connection, at first. One that is suspended never does."""
HEARTBEAT_SECONDS: Final = 3
"""The heartbeat with several brokers. A leader that says nothing for twice as long is left."""


def connect(url: str | Sequence[str] | None = None, **keywords: Any) -> Connection:
    """Connect to a broker and log in.

    `url` is as in `parse_url`. The keyword arguments are the fields of `Parameters` and override the URL. Several URLs,
    in a list or in one text with spaces between them, are those of brokers with one journal: see `connect_any`.

    Raises:
        AuthenticationError: The broker refused the login.
        ConnectionClosed: The connection could not be opened.
        Timeout: TCP, TLS and login together took longer than `connection_timeout`.
        ProgrammingError: The URL or an argument is invalid.
    """
    urls: Sequence[str | None] = (url.split() if isinstance(url, str) else url) or [None]
    return connect_any([parameters(each, **keywords) for each in urls])


def connect_any(wanted: Sequence[Parameters]) -> Connection:
    """Connect to the first broker that accepts. If there are several, they are tried in turn until
    `connection_timeout` is over, since all of them refuse until one has taken over. Each attempt has a second at first,
    and twice as long after a round in which one of them took as long, up to its share of that time.

    Unless `heartbeat` is given, it is `HEARTBEAT_SECONDS`, and a thread sends heartbeats during long computations.

    Raises as `connect` does, with the error of the last attempt.
    """
    if len(wanted) == 1:
        return Connection(wanted[0])
    began = time.monotonic()
    deadline = began + max(each.connection_timeout for each in wanted)
    wanted = [
        replace(each, heartbeat=HEARTBEAT_SECONDS, heartbeat_thread=True) if each.heartbeat is None else each
        for each in wanted
    ]
    patience = ATTEMPT_SECONDS
    while True:
        late = False
        for each in wanted:
            try:
                share = min(patience, each.connection_timeout / len(wanted))
                return Connection(replace(each, connection_timeout=share))
            except errors.AuthenticationError:
                raise
            except errors.OperationalError as error:
                late |= isinstance(error, errors.Timeout)
                if time.monotonic() >= deadline:
                    raise
        patience *= 1 + late
        shortest, longest = ROUND_SECONDS
        time.sleep(min(max((time.monotonic() - began) / 10, shortest), longest))


class Connection(Link):
    """A connection to a broker. Only one thread at a time may use it (PEP 249: threadsafety 1).

    While a call waits, it also processes heartbeats and everything else that the broker sends. Callbacks run only in
    `process_data_events` and `start_consuming`. As a context manager, the connection is closed at the end of the block,
    which rolls back uncommitted work.
    """

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(self, wanted: Parameters) -> None:
        self._events: deque[Callable[[], object]] = deque()
        self._tpc = TwoPhase(self)
        super().__init__(wanted)

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<Connection to {self.parameters.location} ({state})>"

    def channel(self, *, timeout: Timeout = DEFAULT) -> Channel:
        """Open a channel. A channel opened between `tpc_begin` and `tpc_prepare` takes part in the branch.

        Raises:
            RolledBack: The branch has been rolled back because of its timeout.
            OperationalError: The number of open channels has reached the limit that was agreed with the broker.
        """
        with self.guard:
            channel = self.open_channel(Channel, timeout)
            if self._tpc.state is State.ACTIVE:
                try:
                    self._tpc.join([channel])
                except RolledBack:
                    channel.close()
                    raise
        return channel

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown", *, timeout: Timeout = DEFAULT) -> None:
        """Close the connection. A branch that is not prepared is rolled back; a prepared branch stays in doubt.

        It is not an error if the broker is already gone.
        """
        if self.is_open and not self.guard.forked and self._tpc.state is State.ACTIVE:
            # The broker would roll back by itself, but would remember the xid for a while.
            with contextlib.suppress(errors.DatabaseError):
                self.tpc_rollback(timeout=timeout)
        super().close(reply_code, reply_text, timeout=timeout)

    def update_secret(self, new_secret: str | bytes, reason: str, *, timeout: Timeout = DEFAULT) -> None:
        """Replace the connection's password or token, for example before a token expires."""
        with self.guard:
            secret = new_secret.encode() if isinstance(new_secret, str) else new_secret
            method = spec.ConnectionUpdateSecret(secret, reason)
            self.send(method_frame(0, method))
            request = self._requests.add(method)
            self.wait_for(lambda: request is None or request.answer is not None, timeout, "update-secret-ok")

    # -- transactions

    def xid(self, format_id: int, gtrid: str | bytes, bqual: str | bytes) -> Xid:
        """Make a transaction id (PEP 249) from its three parts. Text is encoded as UTF-8.

        Raises:
            ProgrammingError: `format_id` is not 0 to 2**32 - 1, a part exceeds 64 bytes, or `gtrid` is empty.
        """
        return make_xid(format_id, gtrid, bqual)

    def tpc_begin(self, xid: object, *, transaction_timeout: int | None = None) -> None:
        """Begin a branch (PEP 249). All channels take part: those that are open and those that are opened later.

        Everything that they publish and settle from now on belongs to the branch. The broker rolls it back after
        `transaction_timeout` seconds (None: the broker's setting) unless it is prepared by then.

        Raises:
            NotAllowed: The xid is in use.
            ProgrammingError: The connection is already in a branch, or a channel is in tx or confirm mode.
        """
        with self.guard:
            self.check_open()
            self._tpc.begin(as_xid(xid), transaction_timeout, self._channels_in_use())

    def tpc_prepare(self, *, timeout: Timeout = DEFAULT) -> bool:
        """Prepare the branch (PEP 249). On return it is on disk and can be committed even after a crash.

        Nothing can be published or settled after that until `tpc_commit` or `tpc_rollback`. Returns False if the branch
        was empty, so that nothing is left to be committed (as in oracledb).

        Raises:
            RolledBack: The branch could not be prepared and was rolled back.
            ProgrammingError: The connection is not in a branch.
        """
        with self.guard:
            self.check_open()
            return self._tpc.prepare(self._channels_in_use(), timeout)

    def tpc_commit(self, xid: object = None, *, timeout: Timeout = DEFAULT) -> None:
        """Commit the prepared branch (PEP 249). Without a `tpc_prepare` before it, commit in one phase.

        With an xid, commit a branch that `tpc_recover` returned, whichever connection prepared it.

        Raises:
            RolledBack: The branch was rolled back.
            HeuristicOutcome: An operator has completed the branch.
            NotFound: The xid is unknown. After a Timeout, the same call raises NotFound if the branch has ended
                meanwhile: a prepared branch was committed; the outcome of any other is unknown.
            ProgrammingError: There is no branch, or the connection is in one and an xid was given.
        """
        with self.guard:
            self.check_open()
            self._tpc.commit(None if xid is None else as_xid(xid), self._channels_in_use(), timeout)

    def tpc_rollback(self, xid: object = None, *, timeout: Timeout = DEFAULT) -> None:
        """Roll back (PEP 249) the connection's branch, or with an xid a branch that `tpc_recover` returned.

        Its publishes are dropped. Its acknowledged deliveries return to their places, marked as redelivered (DTX-14).

        Raises:
            HeuristicOutcome: An operator has completed the branch.
            NotFound: The xid is unknown.
            ProgrammingError: There is no branch, or the connection is in one and an xid was given.
        """
        with self.guard:
            self.check_open()
            self._tpc.rollback(None if xid is None else as_xid(xid), self._channels_in_use(), timeout)

    def tpc_recover(self, *, timeout: Timeout = DEFAULT) -> list[Xid]:
        """Return the xids of all branches that are prepared (PEP 249) or that an operator has completed (DTX-10)."""
        with self.guard:
            self.check_open()
            return self._tpc.recover(timeout)

    def tpc_forget(self, xid: object, *, timeout: Timeout = DEFAULT) -> None:
        """Have the broker forget a branch that an operator completed, once the HeuristicOutcome has been dealt with."""
        with self.guard:
            self.check_open()
            self._tpc.forget(as_xid(xid), timeout)

    def take_returned(self) -> list[Returned]:
        """Return the mandatory messages that were unroutable when `tpc_commit` committed them.

        All other messages of those branches were delivered to queues.
        """
        returned = list(self._tpc.returned)
        self._tpc.returned.clear()
        return returned

    @property
    def tpc_prepared(self) -> bool:
        """Whether the branch is prepared and awaits its outcome."""
        return self._tpc.prepared

    def commit(self, *, timeout: Timeout = DEFAULT) -> None:
        """Call tx.commit on each transactional channel in turn. Raises ProgrammingError within a branch (PEP 249)."""
        with self.guard:
            self.check_open()
            self._tpc.outside("commit")
            for channel in self._channels_in_use():
                if channel.mode == "tx":
                    channel.rpc(spec.TxCommit(), timeout=timeout)

    def rollback(self, *, timeout: Timeout = DEFAULT) -> None:
        """Call tx.rollback on each transactional channel in turn. Raises ProgrammingError within a branch (PEP 249)."""
        with self.guard:
            self.check_open()
            self._tpc.outside("rollback")
            for channel in self._channels_in_use():
                if channel.mode == "tx":
                    channel.rpc(spec.TxRollback(), timeout=timeout)

    # -- events

    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Run the callbacks for everything that has arrived.

        If nothing has arrived, wait for up to `time_limit` seconds (None: without limit).
        """
        with self.guard:
            self.check_open()
            self.poll()
            if not self._dispatch() and time_limit != 0:
                self.wait(lambda: self._changed or any(c.pending for c in self._channels.values()), time_limit)
                self._dispatch()
            self._changed = False

    def sleep(self, duration: float) -> None:
        """Process events for `duration` seconds."""
        end = time.monotonic() + duration
        while (left := end - time.monotonic()) > 0:
            self.process_data_events(left)

    def add_callback_threadsafe(self, callback: Callable[[], object]) -> None:
        """Schedule `callback` to be run by `process_data_events`. May be called from any thread."""
        self._events.append(callback)
        self._changed = True
        self._transport.wake()

    def _dispatch(self) -> int:
        done = 0
        for _ in range(len(self._events)):
            self._events.popleft()()
            done += 1
        for channel in list(self._channels.values()):
            done += channel.dispatch()
        return done

    def leave_branch(self, channel: ChannelBase) -> None:
        """Detach a channel that is about to be closed. Its work stays in the branch."""
        self._tpc.leave(channel)

    def _channels_in_use(self) -> list[Channel]:
        return [channel for channel in self._channels.values() if isinstance(channel, Channel)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
