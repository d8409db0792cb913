"""The class escrow (240) for those who read and write in bulk: ranges that are held, and decisions over many branches.

docs/internals/bulk.md has the methods. All calls go over a channel of their own, which is opened anew after a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from escrowmq.client.errors import (
    CommandInvalid,
    ConnectionClosed,
    InternalError,
    NotAllowed,
    NotFound,
    NotSupportedError,
    Returned,
    RolledBack,
)
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import bulk, codes, spec
from escrowmq.wire.amqp091.bulk import Bulk

if TYPE_CHECKING:
    from escrowmq.client.channel import Channel
    from escrowmq.client.connection import Connection

__all__ = ["Block", "Bulk", "Escrow", "HoldState", "QueueState", "Settle"]

MOST_BYTES: Final = 4 << 20
"""Bodies in a block, if nothing else is asked for."""


class HoldState(NamedTuple):
    """What a group holds of a queue: the messages numbered `first` to `end` - 1, of which `added` are new.

    All below `settled` were settled by the group. Numbers are never used twice for a group and queue.
    """

    first: int
    end: int
    added: int
    settled: int


class QueueState(NamedTuple):
    """What can be read: of a stream the positions `first` to `next` - 1; of a classic queue, `ready` messages.

    `kind` is "classic" or "stream". A durable queue that is deleted and made anew has another `ident`.
    """

    kind: str
    first: int
    next: int
    ready: int
    ident: int


class Block(NamedTuple):
    """Messages numbered `first` to `next` - 1, in columns; there are none if the two are equal."""

    first: int
    next: int
    bulk: Bulk


class Settle(NamedTuple):
    """Everything of `queue` that `group` holds below number `end` is accepted."""

    queue: str
    group: str
    end: int


class Escrow:
    """Bulk reading and deciding on a connection. Raises what `Channel.rpc` raises.

    What needs a queue: NotFound, AccessRefused. A broker without this class: NotSupportedError.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._own: Channel | None = None
        self._branch: Channel | None = None  # where branches are worked for, so that nothing else gets into them

    # -- holding and reading

    def queues(self) -> list[str]:
        """The names of all queues of the virtual host that the user may read, in order."""
        found: list[str] = []
        while some := self._rpc(spec.EscrowList(found[-1] if found else "")).queues["name"]:
            found += some
        return found

    def describe(self, *queues: str) -> list[QueueState]:
        """What there is to be read, of each; asked in one go."""
        channel = self._channel()
        requests = [channel.begin(spec.EscrowDescribe(queue)) for queue in queues]
        answers = [self._finish(channel, request) for request in requests]
        return [QueueState(*(getattr(answer, field) for field in QueueState._fields)) for answer in answers]

    def hold(self, queue: str, group: str, most: int = 0, until: int = 0) -> HoldState:
        """Hold `most` further messages, or so many that the hold ends with number `until` - 1; with neither, just look.

        It may be fewer: there are no more, or it was enough for one call. Durable when it returns. PreconditionFailed
        for a stream, which is read without holding it.
        """
        answer = self._rpc(spec.EscrowHold(queue, group, most, until))
        return HoldState(answer.first, answer.end, answer.count, answer.settled)

    def release(self, queue: str, group: str) -> int:
        """What a group holds goes back to its places; how many messages that were.

        ResourceLocked while a prepared branch will settle some of it.
        """
        return int(self._rpc(spec.EscrowRelease(queue, group)).count)

    def blocks(self, queue: str, group: str, first: int, end: int, most_bytes: int = MOST_BYTES) -> Iterator[Block]:
        """What `group` holds from number `first` to `end` - 1, or what lies at these positions of a stream.

        What is gone is passed over, as the blocks' numbers tell. While a block is worked on, the broker makes the next.
        """
        channel = self._channel()
        request = channel.begin(spec.EscrowRead(queue, group, first, end, most_bytes))
        while True:
            answer, content = channel.finish(request)
            if content is None or answer.count == 0:
                return
            first = answer.next
            more = first < end
            if more:
                request = channel.begin(spec.EscrowRead(queue, group, first, end, most_bytes))
            try:
                columns = bulk.decode(content.body)
            except bulk.BulkError as error:
                raise InternalError(f"queue {queue!r}: {error}") from error
            yield Block(answer.first, answer.next, columns)
            if not more:
                return

    def settle(self, work: Settle) -> None:
        """At once, and durable when it returns. What was settled before is no error."""
        self._rpc(spec.EscrowSettle(*work))

    # -- branches, by their xid

    def start(self, xid: Xid, seconds: int, *, join: bool = False) -> Channel:
        """Begin a branch that may be active for `seconds`, or join one: the channel that works for it until `end`.

        NotAllowed if it is known and not to be joined, CommandInvalid if it is prepared, RolledBack if it timed out.
        """
        channel = self._branch_channel()
        name = xid.encode()
        requests = [channel.begin(spec.DtxDemarcationStart(name, join))]
        if not join:
            requests.append(channel.begin(spec.DtxCoordinationSetTimeout(name, seconds)))
        flags = next(iter([channel.finish(request) for request in requests])).method.flags
        if flags != codes.XA_OK:
            raise RolledBack(xid, timed_out=flags == codes.XA_RBTIMEOUT)
        return channel

    def end(self, xid: Xid) -> None:
        """The channel works for the branch no longer; anybody may prepare it. RolledBack if that is too late.

        Raises what has closed the channel since `start`, which was refused for what was done on it.
        """
        # Never a new channel, which would be told that it works for nothing, and hide why the first one was closed.
        channel = self._branch or self._branch_channel()
        flags = channel.rpc(spec.DtxDemarcationEnd(xid.encode())).method.flags
        if flags != codes.XA_OK:
            raise RolledBack(xid, timed_out=flags == codes.XA_RBTIMEOUT)

    def enlist(self, xid: Xid, settlements: Iterable[Settle], seconds: int) -> bool:
        """Have a branch settle this; it is begun or, if somebody has done that, joined.

        False if it is prepared already, so that nothing can be added.
        """
        try:
            channel = self.start(xid, seconds)
        except NotAllowed:
            try:
                channel = self.start(xid, seconds, join=True)
            except CommandInvalid:
                return False
        requests = [channel.begin(spec.EscrowSettle(*work)) for work in settlements]
        for request in requests:
            channel.finish(request)
        self.end(xid)
        return True

    def begin_prepare(self, xid: Xid) -> Any:
        """Ask for a branch to be prepared, without waiting for it; for `finish_prepare`."""
        channel = self._channel()
        return channel, channel.begin(spec.DtxCoordinationPrepare(xid.encode()))

    def finish_prepare(self, xid: Xid, request: Any) -> bool:
        """It is on disk, and can be committed whatever happens; False if there was nothing to do. RolledBack."""
        flags = self._finish(*request).flags
        if flags not in (codes.XA_OK, codes.XA_RDONLY):
            raise RolledBack(xid, timed_out=flags == codes.XA_RBTIMEOUT)
        return bool(flags == codes.XA_OK)

    def prepare(self, xid: Xid) -> bool:
        """Prepare a branch that others have worked for; whether there is something to be committed.

        False as well for one that is unknown, or can only be rolled back, which it then is. True for one that is
        prepared already.
        """
        try:
            return self.finish_prepare(xid, self.begin_prepare(xid))
        except (NotFound, RolledBack):
            return False
        except CommandInvalid:
            return xid in self.connection.tpc_recover()

    def rollback(self, xid: Xid) -> bool:
        """Roll a branch back; False if it is unknown."""
        try:
            self._rpc(spec.DtxCoordinationRollback(xid.encode()))
        except NotFound:
            return False
        return True

    def decide(self, format_id: int, gtrid: bytes, winners: Sequence[bytes], application: str, epoch: int) -> None:
        """Commit the prepared branches of a global transaction that are named, in this order, and roll its others back.

        All in one record, which also says that `application` has come to `epoch`; nothing is committed if it was there
        before. Without an application none is noted. Raises NotFound or CommandInvalid, and nothing has happened, if a
        winner is unknown or not prepared.
        """
        names: list[Any] = list(winners)
        self._rpc(spec.EscrowDecide(format_id, gtrid, {"bqual": names}, application, epoch))

    def progress(self, application: str) -> int | None:
        """The last epoch of an application that was decided, None for none. What it says is durable."""
        answer = self._rpc(spec.EscrowProgress(application))
        return int(answer.epoch) if answer.known else None

    def take_returned(self) -> list[Returned]:
        """Mandatory messages that no queue took when they were committed by `decide`."""
        return self._own.take_returned() if self._own is not None else []

    # -- channels

    def _channel(self) -> Channel:
        if self._own is None or not self._own.is_open:
            self._own = self.connection.channel()
        return self._own

    def _branch_channel(self) -> Channel:
        if self._branch is None or not self._branch.is_open:
            self._branch = self.connection.channel()
            self._branch.rpc(spec.DtxDemarcationSelect())
            self._branch.demarcates = True
        return self._branch

    def _rpc(self, method: Any) -> Any:
        channel = self._channel()
        return self._finish(channel, channel.begin(method))

    def _finish(self, channel: Channel, request: Any) -> Any:
        try:
            return channel.finish(request).method
        except ConnectionClosed as error:
            if error.code in {codes.NOT_IMPLEMENTED, codes.COMMAND_INVALID, codes.SYNTAX_ERROR}:
                raise NotSupportedError(f"this broker cannot be read in bulk: {error}") from error
            raise
