"""Pulls: messages of one queue from an offset on, at once or when there are some.

A client keeps its offset itself, and may go on with it after the broker was killed. An answer therefore waits until
what it tells of is on disk: otherwise another message could have that offset then, and the client would pass over it.
It does not hasten the sync, so that a commit, which has no answer, shares the sync of the next half message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.budget import EXAMINED
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.rocketmq.filters import FilterError, Wanted, wanted
from escrowmq.wire.rocketmq.remoting.clients import TopicSubscription
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.deliveries import encode_entries
from escrowmq.wire.rocketmq.remoting.errors import RESULTS, RequestFault
from escrowmq.wire.rocketmq.remoting.fields import number, text
from escrowmq.wire.rocketmq.remoting.frames import Command
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply
from escrowmq.wire.rocketmq.remoting.view_pulls import ViewPull
from escrowmq.wire.rocketmq.remoting.views import view_of

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.groups.group import Group
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection

COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

MOST: Final = 1024
"""Messages in one response, and messages that one pull reads at a time for its filter."""
MOST_BYTES: Final = 256 << 10
"""The size of a response, beyond its first message."""
MOST_EXAMINED: Final = 4096
LONGEST_WAIT_MS: Final = 60_000


class Pull:
    """One pull. While it waits, it is a watcher of the stream and of the connection's room for output."""

    __slots__ = (
        "_connection",
        "_deadline",
        "_group",
        "_most",
        "_passes",
        "_request",
        "_stream",
        "position",
        "queue",
        "topic",
    )

    def __init__(
        self,
        connection: RemotingConnection,
        request: Command,
        topic: str,
        queue: int,
        stream: StreamQueue,
        passes: Wanted | None,
        group: Group | None,
    ) -> None:
        """`group` is the one whose progress counts: messages beyond it that are settled are passed over."""
        self._connection: RemotingConnection | None = connection
        self._group = group
        self._request = request
        self._stream = stream
        self._passes = passes
        self._most = min(max(number(request.fields, "maxMsgNums", 32), 1), MOST)
        self._deadline: Deadline | None = None
        self.topic = topic
        self.queue = queue
        self.position = number(request.fields, "queueOffset") + 1

    def answer_now(self) -> HandlerReply | None:
        """Return the response, or None if there is no message yet."""
        stream = self._stream
        if self.position < stream.begin or self.position > stream.end:
            moved = stream.begin if self.position < stream.begin else stream.end
            return self._reply(ResultCode.PULL_OFFSET_MOVED, moved)
        if self.position == stream.end:
            return None
        found, after = self._read()
        if not found:
            self.position = after
            return self._reply(ResultCode.PULL_RETRY_IMMEDIATELY, after)
        stream.count_read(len(found))  # the member keeps its own position
        response = Command(ResultCode.SUCCESS, _offsets(stream, after), self._encoded(found))
        return HandlerReply(response, found[-1].run.lsn + 1, urgent=False)

    def nothing(self) -> HandlerReply:
        """Return the response to a pull for which there is no message."""
        return self._reply(ResultCode.PULL_NOT_FOUND, self.position)

    def hold(self, until: int) -> None:
        """Wait for a message until a time."""
        assert self._connection is not None
        self._stream.watch(self.position, self)
        self._deadline = self._connection.engine.deadlines.set(until, self._expire)

    def close(self) -> None:
        """Wait no longer."""
        self._stream.unwatch(self)
        if self._deadline is not None:
            self._deadline.cancel()
        self._connection = self._deadline = None

    def ready(self) -> None:
        """There is a message, or the stream was deleted. See `StreamQueue.watch`."""
        connection = self._connection
        if connection is None:
            return
        if not connection.flow.writable:
            connection.flow.stall(self)
            return
        try:
            reply = self.answer_now()
        except BrokerError as error:
            connection.login.refusals.call(error)
            reply = HandlerReply(Command(RESULTS[error.condition], remark=error.text))
        if reply is None and self._stream.deleted:
            reply = HandlerReply(Command(ResultCode.TOPIC_NOT_EXIST, remark=f"topic {self.topic} was deleted"))
        if reply is None:
            self._stream.watch(self.position, self)
        else:
            self._finish(reply)

    wake = ready

    def _expire(self) -> None:
        self._finish(self.nothing())

    def _finish(self, reply: HandlerReply) -> None:
        connection, request = self._connection, self._request
        if connection is not None:
            connection.flow.forget(self)
            connection.pulls.forget(self)
            self.close()
            connection.respond(request, reply.response, reply.after, urgent=reply.urgent)

    def _read(self) -> tuple[list[Entry], int]:
        """Return the messages that pass the filter, and the position after the last one that was examined."""
        assert self._connection is not None
        passes, stream = self._passes, self._stream
        settled = None if self._group is None else self._group.settled_beyond(stream)
        found: list[Entry] = []
        size, position, end = 0, self.position, min(stream.end, self.position + MOST_EXAMINED)
        is_full = False
        while position < end and not is_full:
            entries = stream.read(position, min(self._most - len(found) if passes is None else MOST, end - position))
            if not entries:
                break
            if passes is None and (settled is None or entries[-1].position < settled.floor):
                more = sum([len(entry.content) for entry in entries])
                if size + more <= MOST_BYTES:  # the same as below, in fewer steps
                    found += entries
                    size += more
                    position = entries[-1].position + 1
                    is_full = len(found) >= self._most
                    continue
            for entry in entries:
                is_open = settled is None or entry.position < settled.floor or entry.position not in settled
                if is_open and (passes is None or passes(entry.run.envelope, entry.content)):
                    is_full = bool(found) and size + len(entry.content) > MOST_BYTES
                    if is_full:
                        break
                    found.append(entry)
                    size += len(entry.content)
                position = entry.position + 1
                is_full = len(found) >= self._most
                if is_full:
                    break
        examined = position - self.position - (len(found) if passes is None else 0)
        self._connection.engine.requests.left -= len(found) // 4 + examined // EXAMINED
        return found, position

    def _encoded(self, entries: Sequence[Entry]) -> bytes:
        assert self._connection is not None
        return encode_entries(entries, self.topic, self.queue, self._stream.ident, self._connection.address)

    def _reply(self, result: ResultCode, position: int) -> HandlerReply:
        """Return a response without messages."""
        assert self._connection is not None
        return HandlerReply(Command(result, _offsets(self._stream, position)), self._connection.engine.log.end_lsn)


class HeldPull(Protocol):
    """A pull that can wait."""

    def hold(self, until: int) -> None:
        """Wait for a message until a time."""
        ...

    def close(self) -> None:
        """Wait no longer."""
        ...


class HeldPulls:
    """The pulls of one connection that wait."""

    __slots__ = ("_connection", "_pulls")

    def __init__(self, connection: RemotingConnection) -> None:
        self._connection = connection
        self._pulls: dict[HeldPull, None] = {}

    def __len__(self) -> int:
        return len(self._pulls)

    def hold(self, pull: HeldPull, wait_ms: int) -> None:
        """Let a pull wait."""
        self._pulls[pull] = None
        pull.hold(self._connection.engine.now + wait_ms)

    def forget(self, pull: HeldPull) -> None:
        """Forget a pull that is answered."""
        self._pulls.pop(pull, None)

    def close(self) -> None:
        """Give up all pulls."""
        pulls, self._pulls = self._pulls, {}
        for pull in pulls:
            pull.close()


def pull(connection: RemotingConnection, request: Command) -> HandlerReply | None:
    """Answer a pull, or hold it back until there is a message."""
    fields = request.fields
    group, topic = text(fields, "consumerGroup"), text(fields, "topic")
    flags = number(fields, "sysFlag", 0)
    catalogue = connection.catalogue
    view = view_of(connection, topic)
    if view is not None:
        return _answer(connection, ViewPull(connection, request, view, group), flags, request)
    catalogue.check_consume(group, topic)
    if catalogue.find(topic) is None:
        connection.login.refusals.missing(topic, catalogue.vhost.name)
        raise RequestFault(ResultCode.TOPIC_NOT_EXIST, f"topic {topic} does not exist")
    queue = number(fields, "queueId")
    stream = catalogue.stream(topic, queue)
    passes = _filter(connection, request, group, topic, flags)
    moved = _moved(connection, request, group, stream)
    if moved is not None:
        return moved
    if flags & COMMIT_OFFSET and (offset := number(fields, "commitOffset", -1)) > 0:
        catalogue.ensure_group(group).advance(stream, offset + 1)
    return _answer(
        connection, Pull(connection, request, topic, queue, stream, passes, catalogue.group(group)), flags, request
    )


def _moved(connection: RemotingConnection, request: Command, group: str, stream: StreamQueue) -> HandlerReply | None:
    """The answer that tells a member of the offset to which an operator has reset its group, unless it knows that."""
    consumers, found = connection.consumers, connection.catalogue.group(group)
    if found is None or not consumers.was_reset(group, stream.ident):
        return None
    consumers.forget_reset(group, stream.ident)
    position = found.progress(stream)
    if position is None or number(request.fields, "queueOffset") + 1 == position:
        return None
    return HandlerReply(
        Command(ResultCode.PULL_OFFSET_MOVED, _offsets(stream, position), remark="an operator has reset the offset")
    )


def _offsets(stream: StreamQueue, position: int) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(position - 1),
        "minOffset": str(stream.begin - 1),
        "maxOffset": str(stream.end - 1),
    }


def _answer(
    connection: RemotingConnection, asked: Pull | ViewPull, flags: int, request: Command
) -> HandlerReply | None:
    """The answer to a pull, or None if it waits."""
    reply = asked.answer_now()
    if reply is None:
        wait = min(number(request.fields, "suspendTimeoutMillis", 0), LONGEST_WAIT_MS)
        if flags & SUSPEND and wait > 0 and len(connection.pulls) < connection.options.held_pulls:
            connection.pulls.hold(asked, wait)
            return None
        reply = asked.nothing()
    return reply


def _filter(connection: RemotingConnection, request: Command, group: str, topic: str, flags: int) -> Wanted | None:
    """The filter in the request, or that of the client's last heartbeat."""
    fields = request.fields
    if flags & SUBSCRIPTION or request.code == Code.LITE_PULL:
        subscription = TopicSubscription(fields.get("expressionType", ""), fields.get("subscription", "*"))
    else:
        member = connection.consumers.member(connection, group)
        known = member.subscriptions.get(topic) if member is not None else None
        if known is None:
            raise RequestFault(
                ResultCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group {group} has no subscription to topic {topic}"
            )
        subscription = known
    try:
        return wanted(subscription.kind, subscription.expression)
    except FilterError as error:
        raise RequestFault(ResultCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
