"""A connection: PEP 249's two-phase part, pika's names for the rest."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

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


def connect(url: str | None = None, **keywords: Any) -> Connection:
    """Connect and log in. `url` as in `parse_url`, keyword arguments as the fields of `Parameters`.

    Raises ConnectionClosed (AuthenticationError for a refused login), Timeout, ProgrammingError for bad arguments.
    """
    return Connection(parameters(url, **keywords))


class Connection(Link):
    """A connection to a broker. One thread at a time may use it (PEP 249: threadsafety 1).

    While a call waits, heartbeats and all that the broker sends are seen to; callbacks run in `process_data_events`
    and `start_consuming` only. As a context manager it is closed at the end, which rolls back what is not committed.
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
        return f"<Connection to {self.parameters.address}{self.parameters.virtual_host} ({state})>"

    def channel(self, *, timeout: Timeout = DEFAULT) -> Channel:
        """Open a channel. Between `tpc_begin` and `tpc_prepare` it takes part in the branch."""
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
        """Close it. A branch that is not prepared is rolled back, one that is prepared stays in doubt.

        That the broker is gone already is no error.
        """
        if self.is_open and not self.guard.forked and self._tpc.state is State.ACTIVE:
            with contextlib.suppress(
                errors.DatabaseError
            ):  # the broker does it, too, but remembers the xid for a while
                self.tpc_rollback(timeout=timeout)
        super().close(reply_code, reply_text, timeout=timeout)

    def update_secret(self, new_secret: str | bytes, reason: str, *, timeout: Timeout = DEFAULT) -> None:
        """Give the broker a fresh password or token."""
        with self.guard:
            secret = new_secret.encode() if isinstance(new_secret, str) else new_secret
            method = spec.ConnectionUpdateSecret(secret, reason)
            self.send(method_frame(0, method))
            request = self._requests.add(method)
            self.wait_for(lambda: request is None or request.answer is not None, timeout, "update-secret-ok")

    # -- transactions

    def xid(self, format_id: int, gtrid: str | bytes, bqual: str | bytes) -> Xid:
        """A transaction id (PEP 249): a tuple of the three, the last two as bytes; text is taken as UTF-8."""
        return make_xid(format_id, gtrid, bqual)

    def tpc_begin(self, xid: object, *, transaction_timeout: int | None = None) -> None:
        """Begin a branch (PEP 249): all channels take part, those that are open and those that are opened later.

        What they publish and settle from now on belongs to it. After `transaction_timeout` seconds (None: the broker's
        setting) the broker rolls it back, unless it is prepared. Raises ProgrammingError within a branch, if the
        xid is in use (NotAllowed), or if a channel is in tx or confirm mode.
        """
        with self.guard:
            self.check_open()
            self._tpc.begin(as_xid(xid), transaction_timeout, self._channels_in_use())

    def tpc_prepare(self, *, timeout: Timeout = DEFAULT) -> bool:
        """The first phase (PEP 249): on return it is on disk, and can be committed whatever happens.

        False if there was nothing to do, so that nothing is left to be committed (as oracledb has it). Raises
        RolledBack if it is impossible, ProgrammingError outside a branch. Afterwards nothing can be published or
        settled until `tpc_commit` or `tpc_rollback`.
        """
        with self.guard:
            self.check_open()
            return self._tpc.prepare(self._channels_in_use(), timeout)

    def tpc_commit(self, xid: object = None, *, timeout: Timeout = DEFAULT) -> None:
        """The second phase (PEP 249); without `tpc_prepare` before it, commit in one phase.

        With an xid: commit what `tpc_recover` has found, also of other connections. Raises RolledBack,
        HeuristicOutcome, ProgrammingError (NotFound for an unknown xid, and when asked again after a Timeout for one
        that has met its end meanwhile: a prepared one is committed, of another one nobody can tell).
        """
        with self.guard:
            self.check_open()
            self._tpc.commit(None if xid is None else as_xid(xid), self._channels_in_use(), timeout)

    def tpc_rollback(self, xid: object = None, *, timeout: Timeout = DEFAULT) -> None:
        """Roll back (PEP 249): the branch of this connection, or with an xid what `tpc_recover` has found.

        What was published is dropped, what was acknowledged goes back to its place, redelivered (DTX-14). Raises
        HeuristicOutcome, ProgrammingError (NotFound for an unknown xid).
        """
        with self.guard:
            self.check_open()
            self._tpc.rollback(None if xid is None else as_xid(xid), self._channels_in_use(), timeout)

    def tpc_recover(self, *, timeout: Timeout = DEFAULT) -> list[Xid]:
        """The xids of all prepared branches (PEP 249), and of those that were completed by hand (DTX-10)."""
        with self.guard:
            self.check_open()
            return self._tpc.recover(timeout)

    def tpc_forget(self, xid: object, *, timeout: Timeout = DEFAULT) -> None:
        """Let the broker forget a branch that was completed by hand, once HeuristicOutcome has been dealt with."""
        with self.guard:
            self.check_open()
            self._tpc.forget(as_xid(xid), timeout)

    def take_returned(self) -> list[Returned]:
        """Mandatory messages that no queue took when `tpc_commit` committed them. The rest is committed."""
        returned = list(self._tpc.returned)
        self._tpc.returned.clear()
        return returned

    @property
    def tpc_prepared(self) -> bool:
        """Whether the branch is prepared, so that only its outcome is missing."""
        return self._tpc.prepared

    def commit(self, *, timeout: Timeout = DEFAULT) -> None:
        """Commit on each channel with `tx_select`, one after the other. ProgrammingError within a branch (PEP 249)."""
        with self.guard:
            self.check_open()
            self._tpc.outside("commit")
            for channel in self._channels_in_use():
                if channel.mode == "tx":
                    channel.rpc(spec.TxCommit(), timeout=timeout)

    def rollback(self, *, timeout: Timeout = DEFAULT) -> None:
        """Roll back on each channel with `tx_select`. ProgrammingError within a branch (PEP 249)."""
        with self.guard:
            self.check_open()
            self._tpc.outside("rollback")
            for channel in self._channels_in_use():
                if channel.mode == "tx":
                    channel.rpc(spec.TxRollback(), timeout=timeout)

    # -- events

    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Run the callbacks for what has come; if that is nothing, wait `time_limit` s (None: for ever) for it."""
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
        """From any thread: have this called by `process_data_events` in the thread that uses the connection."""
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
        """A channel is about to be closed by the program: what it did stays in the branch."""
        self._tpc.leave(channel)

    def _channels_in_use(self) -> list[Channel]:
        return [channel for channel in self._channels.values() if isinstance(channel, Channel)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
