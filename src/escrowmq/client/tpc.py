"""A connection's two-phase commit, as in PEP 249, over the broker's dtx classes (docs/semantics.md, DTX)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from escrowmq.client.channel_base import DEFAULT, ChannelBase, Timeout
from escrowmq.client.errors import (
    ChannelClosed,
    ConnectionClosed,
    HeuristicOutcome,
    InternalError,
    NotFound,
    NotSupportedError,
    ProgrammingError,
    Returned,
    RolledBack,
)
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import codes, spec

if TYPE_CHECKING:
    from escrowmq.client.link import Link

_HEURISTIC: Final = {
    codes.XA_HEURCOM: "committed",
    codes.XA_HEURRB: "rolled back",
    codes.XA_HEURMIX: "mixed",
    codes.XA_HEURHAZ: "hazard",
}
_ROLLED_BACK: Final = (codes.XA_RBROLLBACK, codes.XA_RBTIMEOUT)
# Reply codes with which brokers that lack these classes close the connection.
_UNKNOWN_METHOD: Final = (codes.SYNTAX_ERROR, codes.COMMAND_INVALID, codes.NOT_IMPLEMENTED)


_MAX_SECONDS: Final = (1 << 32) - 1
_ALREADY_PREPARED: Final = "the branch is already prepared; call tpc_commit or tpc_rollback"


class State(Enum):
    """The state of a connection's branch."""

    IDLE = auto()
    ACTIVE = auto()
    PREPARED = auto()
    READ_ONLY = auto()  # prepared, but the branch was empty
    ROLLED_BACK = auto()  # prepare failed: the broker has rolled back


class Coordinating(ChannelBase):
    """The channel that begins branches and requests outcomes."""

    returned: list[Returned]

    def on_return(self, returned: Returned) -> None:
        self.returned.append(returned)


class TwoPhase:
    """The branch of a connection.

    It uses a channel of its own, so that a refused request closes none of the application's channels.
    """

    def __init__(self, connection: Link) -> None:
        self._connection = connection
        self._own: Coordinating | None = None
        self.returned: list[Returned] = []
        """Mandatory messages that were unroutable at the commit and have not been taken yet."""
        self.state = State.IDLE
        self._xid: Xid | None = None
        self._asked = False  # a commit in one phase was requested, but the answer did not come in time

    @property
    def xid(self) -> Xid:
        """The xid of the current or last branch."""
        assert self._xid is not None
        return self._xid

    @property
    def prepared(self) -> bool:
        """Whether only an outcome is possible now."""
        return self.state in (State.PREPARED, State.READ_ONLY, State.ROLLED_BACK)

    def begin(self, xid: Xid, seconds: int | None, channels: Iterable[ChannelBase]) -> None:
        """Begin a branch and have the channels take part in it. `seconds` is its timeout, None for the broker's."""
        self.outside("tpc_begin")
        if seconds is not None and not 0 <= seconds <= _MAX_SECONDS:
            raise ProgrammingError(f"transaction_timeout must be 0 to {_MAX_SECONDS} s, not {seconds}")
        taking_part = list(channels)
        for channel in taking_part:
            self._may_join(channel)
        own = self._coordinator()
        requests = [*self._select(own), own.begin(spec.DtxDemarcationStart(xid.encode()))]
        try:
            for request in requests:
                own.finish(request)
        except ConnectionClosed as error:
            raise _unsupported(error) from error
        own.in_branch = True
        self.state, self._xid, self._asked = State.ACTIVE, xid, False
        try:
            if seconds is not None:
                own.rpc(spec.DtxCoordinationSetTimeout(xid.encode(), int(seconds)))
            self.join(taking_part)
        except (ChannelClosed, RolledBack):
            self.rollback(None, taking_part)
            raise

    def join(self, channels: Iterable[ChannelBase]) -> None:
        """Have channels take part in the active branch. Raises RolledBack if its timeout has expired."""
        requests: list[tuple[ChannelBase, list[Any]]] = []
        for channel in channels:
            self._may_join(channel)
            started = [*self._select(channel), channel.begin(spec.DtxDemarcationStart(self.xid.encode(), True))]
            requests.append((channel, started))
        for channel, started in requests:
            flags = [channel.finish(request) for request in started][-1].method.flags
            if flags != codes.XA_OK:  # the branch's timeout has expired, so the channel has not joined it
                raise RolledBack(self.xid, timed_out=flags == codes.XA_RBTIMEOUT)
            channel.in_branch = True

    def leave(self, channel: ChannelBase) -> None:
        """Detach a channel that is about to be closed. Its work stays in the branch."""
        if channel.in_branch and self.state is State.ACTIVE:
            channel.finish(channel.begin(spec.DtxDemarcationEnd(self.xid.encode())))
            channel.in_branch = False

    def prepare(self, channels: Iterable[ChannelBase], timeout: Timeout) -> bool:
        """Prepare the branch. Returns whether there is anything to commit. Raises RolledBack."""
        if self.state is not State.ACTIVE:
            raise ProgrammingError(
                "tpc_prepare needs tpc_begin first" if self.state is State.IDLE else _ALREADY_PREPARED
            )
        try:
            flags = self._outcome(channels, spec.DtxCoordinationPrepare(self.xid.encode()), timeout)
        except NotFound:
            flags = codes.XA_RBROLLBACK
        if flags in _ROLLED_BACK:
            self.state = State.ROLLED_BACK
            raise RolledBack(self.xid, timed_out=flags == codes.XA_RBTIMEOUT)
        if flags not in (codes.XA_OK, codes.XA_RDONLY):
            raise InternalError(f"branch {self.xid}: the broker answered prepare with unknown flags {flags}")
        self.state = State.PREPARED if flags == codes.XA_OK else State.READ_ONLY
        return flags == codes.XA_OK

    def commit(self, xid: Xid | None, channels: Iterable[ChannelBase], timeout: Timeout = DEFAULT) -> None:
        """Commit the connection's branch, or a prepared branch by its xid.

        Raises NotFound after a Timeout if the first request has ended the branch, with either outcome.
        """
        if xid is not None:
            self.outside("tpc_commit with an xid")
            flags = self._coordinate(spec.DtxCoordinationCommit(xid.encode()), timeout)
            self._judge(xid, flags, "commit")
            return
        if self.state is State.IDLE:
            raise ProgrammingError("tpc_commit needs tpc_begin first, or an xid")
        if self.state is State.ROLLED_BACK:
            raise ProgrammingError(f"branch {self.xid} was rolled back; call tpc_rollback to leave it")
        if self.state is not State.READ_ONLY:
            one_phase, before = self.state is State.ACTIVE, self._asked
            self._asked = one_phase
            try:
                flags = self._outcome(channels, spec.DtxCoordinationCommit(self.xid.encode(), one_phase), timeout)
            except NotFound:
                if before or not one_phase:
                    self._end()
                    raise
                flags = codes.XA_RBROLLBACK
            self._judge(self._end(), flags, "commit")
        self._end()

    def rollback(self, xid: Xid | None, channels: Iterable[ChannelBase], timeout: Timeout = DEFAULT) -> None:
        """Roll back the connection's branch, or a prepared branch by its xid."""
        if xid is not None:
            self.outside("tpc_rollback with an xid")
            flags = self._coordinate(spec.DtxCoordinationRollback(xid.encode()), timeout)
            self._judge(xid, flags, "rollback")
            return
        if self.state is State.IDLE:
            raise ProgrammingError("tpc_rollback needs tpc_begin first, or an xid")
        if self.state in (State.ACTIVE, State.PREPARED):
            active = self.state is State.ACTIVE and not self._asked
            try:
                flags = self._outcome(channels, spec.DtxCoordinationRollback(self.xid.encode()), timeout)
            except NotFound:
                if not active:
                    self._end()
                    raise
                flags = codes.XA_RBROLLBACK
            self._judge(self._end(), flags, "rollback")
        self._end()

    def recover(self, timeout: Timeout) -> list[Xid]:
        """Return the xids that are in doubt or were completed by an operator.

        One answer has as many as fit into a frame.
        """
        own = self._coordinator()
        found: list[Xid] = []
        more = True
        while more:
            try:
                table = own.rpc(spec.DtxCoordinationRecover(not found, 0), timeout=timeout).method.xids
            except ConnectionClosed as error:
                raise _unsupported(error) from error
            more = bool(table["xids"])
            found += [Xid.decode(xid.encode() if isinstance(xid, str) else xid) for xid in table["xids"]]
        return found

    def forget(self, xid: Xid, timeout: Timeout) -> None:
        """Have the broker forget a branch that an operator completed."""
        self._coordinator().rpc(spec.DtxCoordinationForget(xid.encode()), timeout=timeout)

    def outside(self, what: str) -> None:
        """Raise ProgrammingError if the connection is in a branch. `what` names the operation in the error."""
        if self.state is not State.IDLE:
            raise ProgrammingError(
                f"{what} is not possible within branch {self.xid}; call tpc_commit or tpc_rollback first"
            )

    # -- inside

    def _coordinator(self) -> Coordinating:
        if (
            self._connection.server_properties.get("product") == "RabbitMQ"
        ):  # which closes the connection on an unknown class
            raise NotSupportedError("RabbitMQ does not support distributed transactions")
        if self._own is None or not self._own.is_open:
            self._own = self._connection.open_channel(Coordinating)
            self._own.returned = self.returned
        return self._own

    def _select(self, channel: ChannelBase) -> list[Any]:
        if channel.demarcates:
            return []
        channel.demarcates = True
        return [channel.begin(spec.DtxDemarcationSelect())]

    def _may_join(self, channel: ChannelBase) -> None:
        if channel.mode:
            raise ProgrammingError(
                f"channel {channel.channel_number} is in {channel.mode} mode and cannot take part in a branch"
            )

    def _outcome(self, channels: Iterable[ChannelBase], method: Any, timeout: Timeout) -> int:
        """Detach all channels from the branch and request an outcome, pipelined. Returns the flags of the answer.

        The broker processes the requests in this order. If detaching a channel fails, the branch stays as it is, and so
        the outcome fails too.
        """
        own = self._coordinator()
        ends: list[tuple[ChannelBase, Any]] = []
        for channel in (own, *channels):
            if channel.in_branch and channel.is_open:
                ends.append((channel, channel.begin(spec.DtxDemarcationEnd(self.xid.encode()))))
            channel.in_branch = False
        request = own.begin(method)
        timed_out = False
        for channel, end in ends:
            try:
                timed_out |= channel.finish(end, timeout).method.flags == codes.XA_RBTIMEOUT
            except ChannelClosed:
                if channel is own:
                    raise
        try:
            flags = int(own.finish(request, timeout).method.flags)
        except NotFound:
            if timed_out:
                return codes.XA_RBTIMEOUT
            raise
        return flags

    def _coordinate(self, method: Any, timeout: Timeout) -> int:
        flags = self._coordinator().rpc(method, timeout=timeout).method.flags
        return int(flags)

    def _judge(self, xid: Xid, flags: int, asked: str) -> None:
        """Raise the error that the flags of an answer stand for."""
        if flags in _HEURISTIC:
            raise HeuristicOutcome(xid, _HEURISTIC[flags], asked)
        if flags in _ROLLED_BACK:
            if asked == "commit":
                raise RolledBack(xid, timed_out=flags == codes.XA_RBTIMEOUT)
        elif flags not in (codes.XA_OK, codes.XA_RDONLY):
            raise InternalError(f"branch {xid}: the broker answered {asked} with unknown flags {flags}")

    def _end(self) -> Xid:
        """Leave the branch. Returns its xid."""
        self.state = State.IDLE
        return self.xid


def _unsupported(error: ConnectionClosed) -> Exception:
    if error.code in _UNKNOWN_METHOD:
        return NotSupportedError(f"this broker does not support distributed transactions: {error}")
    return error
