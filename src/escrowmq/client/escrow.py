"""Bulk reading and deciding over the broker's AMQP class escrow (240), described in docs/internals/bulk.md.

All calls use a channel of their own, which is reopened after the broker has closed it.
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
"""The default limit for the bodies in one block, in bytes."""


class HoldState(NamedTuple):
    """The messages of a queue that a group holds: numbers `first` to `end` - 1, of which `added` are new.

    The group has settled every number below `settled`. A number is never reused for the same group and queue.
    """

    first: int
    end: int
    added: int
    settled: int


class QueueState(NamedTuple):
    """The readable part of a queue: positions `first` to `next` - 1 of a stream, `ready` messages of a classic queue.

    `kind` is "classic" or "stream". `ident` changes when a durable queue is deleted and declared again.
    """

    kind: str
    first: int
    next: int
    ready: int
    ident: int


class Block(NamedTuple):
    """Messages numbered `first` to `next` - 1, in columns. The block is empty if the two are equal."""

    first: int
    next: int
    bulk: Bulk


class Settle(NamedTuple):
    """Accepts every message of `queue` that `group` holds with a number below `end`."""

    queue: str
    group: str
    end: int


class Escrow:
    """Bulk reading and deciding on a connection.

    Every method can raise the errors of `Channel.rpc`, and NotSupportedError if the broker lacks this class. Methods
    that name a queue raise NotFound or AccessRefused if it does not exist or the user has no permission for it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._own: Channel | None = None
        self._branch: Channel | None = None  # separate, so that nothing else gets into a branch

    # -- holding and reading

    def queues(self) -> list[str]:
        """Return the names of all queues of the virtual host that the user may read, in order."""
        found: list[str] = []
        while some := self._rpc(spec.EscrowList(found[-1] if found else "")).queues["name"]:
            found += some
        return found

    def streams(self, topic: str) -> list[str]:
        """Return the names of a topic's streams, in the order of its partitions; none if there is no such topic."""
        count = self._rpc(spec.EscrowPartitions(topic)).count
        return [f"{topic}-{partition}" for partition in range(count)]

    def describe(self, *queues: str) -> list[QueueState]:
        """Return the state of each queue. The requests are pipelined."""
        channel = self._channel()
        requests = [channel.begin(spec.EscrowDescribe(queue)) for queue in queues]
        answers = [self._finish(channel, request) for request in requests]
        return [QueueState(*(getattr(answer, field) for field in QueueState._fields)) for answer in answers]

    def hold(self, queue: str, group: str, most: int = 0, until: int = 0) -> HoldState:
        """Hold up to `most` more messages, or all up to number `until` - 1; with neither, return the current state.

        It may add fewer, because the queue has no more or because of the limit of one call. The result is durable.

        Raises:
            PreconditionFailed: The queue is a stream; streams are read without holding messages.
        """
        answer = self._rpc(spec.EscrowHold(queue, group, most, until))
        return HoldState(answer.first, answer.end, answer.count, answer.settled)

    def release(self, queue: str, group: str) -> int:
        """Put the messages that a group holds back in their places. Returns their number.

        Raises:
            ResourceLocked: A prepared branch will settle some of them.
        """
        return int(self._rpc(spec.EscrowRelease(queue, group)).count)

    def blocks(self, queue: str, group: str, first: int, end: int, most_bytes: int = MOST_BYTES) -> Iterator[Block]:
        """Yield the messages `first` to `end` - 1 that `group` holds, or those at these positions of a stream.

        `most_bytes` limits the bodies in one block. Messages that no longer exist are skipped, as the numbers of the
        blocks show. The next block is requested before the current one is yielded, so that client and broker work at
        the same time.
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
        """Settle immediately. The result is durable. Settling something again is not an error."""
        self._rpc(spec.EscrowSettle(*work))

    # -- branches, by their xid

    def start(self, xid: Xid, seconds: int, *, join: bool = False) -> Channel:
        """Begin a branch that may be active for `seconds`, or with `join` join an existing one.

        Returns the channel whose work belongs to the branch until `end`.

        Raises:
            NotAllowed: The branch exists, and `join` is false.
            CommandInvalid: The branch is prepared.
            RolledBack: The branch was rolled back because its timeout expired.
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
        """Detach the channel from the branch, after which any connection may prepare it.

        Raises:
            RolledBack: The branch was rolled back meanwhile.
            ChannelClosed: The broker refused work of the branch and closed the channel.
        """
        # Not on a new channel: its error would hide the reason why the first one was closed.
        channel = self._branch or self._branch_channel()
        flags = channel.rpc(spec.DtxDemarcationEnd(xid.encode())).method.flags
        if flags != codes.XA_OK:
            raise RolledBack(xid, timed_out=flags == codes.XA_RBTIMEOUT)

    def enlist(self, xid: Xid, settlements: Iterable[Settle], seconds: int) -> bool:
        """Add settlements to a branch, which is begun with a timeout of `seconds`, or joined if it exists.

        Returns False if the branch is already prepared, so that nothing can be added.
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
        """Request that a branch be prepared, without waiting. Returns the request for `finish_prepare`."""
        channel = self._channel()
        return channel, channel.begin(spec.DtxCoordinationPrepare(xid.encode()))

    def finish_prepare(self, xid: Xid, request: Any) -> bool:
        """Wait for the answer to `begin_prepare`. Returns False if the branch was empty.

        On return the branch is on disk and can be committed even after a crash.

        Raises:
            RolledBack: The branch could not be prepared and was rolled back.
        """
        flags = self._finish(*request).flags
        if flags not in (codes.XA_OK, codes.XA_RDONLY):
            raise RolledBack(xid, timed_out=flags == codes.XA_RBTIMEOUT)
        return bool(flags == codes.XA_OK)

    def prepare(self, xid: Xid) -> bool:
        """Prepare a branch that other connections have worked for. Returns whether there is something to commit.

        Returns True if the branch is already prepared; False if it is unknown, or had to be rolled back.
        """
        try:
            return self.finish_prepare(xid, self.begin_prepare(xid))
        except (NotFound, RolledBack):
            return False
        except CommandInvalid:
            return xid in self.connection.tpc_recover()

    def rollback(self, xid: Xid) -> bool:
        """Roll a branch back. Returns False if it is unknown."""
        try:
            self._rpc(spec.DtxCoordinationRollback(xid.encode()))
        except NotFound:
            return False
        return True

    def decide(self, format_id: int, gtrid: bytes, winners: Sequence[bytes], application: str, epoch: int) -> None:
        """Commit the named prepared branches of a global transaction, in this order, and roll back all its others.

        One record contains all of that. It also records that `application` has reached `epoch`; if it had reached that
        epoch before, nothing is committed. An empty `application` records no epoch.

        Raises:
            NotFound: A winner is unknown; nothing has happened.
            CommandInvalid: A winner is not prepared; nothing has happened.
        """
        names: list[Any] = list(winners)
        self._rpc(spec.EscrowDecide(format_id, gtrid, {"bqual": names}, application, epoch))

    def progress(self, application: str) -> int | None:
        """Return the last epoch of an application that was decided, or None. The answer is durable."""
        answer = self._rpc(spec.EscrowProgress(application))
        return int(answer.epoch) if answer.known else None

    def take_returned(self) -> list[Returned]:
        """Return the mandatory messages that were unroutable when `decide` committed them."""
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
