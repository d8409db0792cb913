"""ReceiveMessage: a long poll, answered with the messages that were leased, when their leases are on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError
from escrowmq.core.groups.group import Lease
from escrowmq.wire.rocketmq.filters import SQL92, TAG, FilterError, wanted
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, milliseconds, ok, refusal
from escrowmq.wire.rocketmq.grpc.attempts import ReceiveSource
from escrowmq.wire.rocketmq.grpc.leases import LEASE_MS, receipt
from escrowmq.wire.rocketmq.grpc.outgoing import Whereabouts, outgoing_message, timestamp
from escrowmq.wire.rocketmq.grpc.settings import LONG_POLLING_MS, RECEIVE_BATCH
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, FilterType, Status
from escrowmq.wire.rocketmq.proto.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.groups.cursor import Wants
    from escrowmq.core.groups.group import Group
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession
    from escrowmq.wire.rocketmq.proto.definition_pb2 import FilterExpression, Message

SHORTEST_POLL_MS: Final = 5000
SHORTEST_LEASE_MS: Final = 10_000
LONGEST_LEASE_MS: Final = 12 * 3600 * 1000
ANSWER_BYTES: Final = 4 << 20
"""Octets of bodies after which no further messages are leased for an answer."""
_TOGETHER: Final = 8
_MARGIN_MS: Final = 100
_NONE: Final = Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


def receive_message(session: GrpcSession, call: Call, request: ReceiveMessageRequest) -> None:
    """Lease messages, or wait for some."""
    topic = session.topic(request.message_queue.topic)
    name = session.group(request.group)
    session.door.check(Operation.CONSUME_GROUP, exchange=topic.name, queue=name)
    group = session.catalogue.ensure_group(name)
    wants = _filter(request.filter_expression)
    poll = LongPoll(session, call, request, topic, group, wants)
    if not poll.repeat() and not poll.serve():
        poll.wait(_polling(call, request, session.broker.engine.now))


def _filter(expression: FilterExpression) -> Wants | None:
    kind = SQL92 if expression.type == FilterType.SQL else TAG
    try:
        passes = wanted(kind, expression.expression)
    except FilterError as error:
        raise RocketmqRefusal(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
    if passes is None:
        return None
    return lambda _, entry: passes(entry.run.envelope, entry.content)


def _polling(call: Call, request: ReceiveMessageRequest, now_ms: int) -> int:
    """Return the time to wait in milliseconds. Raises RocketmqRefusal if the call's deadline is too near."""
    given = milliseconds(request.long_polling_timeout) if request.HasField("long_polling_timeout") else LONG_POLLING_MS
    polling = max(SHORTEST_POLL_MS, min(given, LONG_POLLING_MS))
    remaining = polling + _MARGIN_MS if call.due is None else call.due - now_ms
    if polling > remaining:
        if remaining < SHORTEST_POLL_MS:
            raise RocketmqRefusal(
                Code.ILLEGAL_POLLING_TIME, f"the deadline is {remaining} ms away, less than {SHORTEST_POLL_MS}"
            )
        polling = remaining
    return max(0, min(polling, remaining - _MARGIN_MS))


def _invisible(request: ReceiveMessageRequest) -> int:
    if request.auto_renew or not request.HasField("invisible_duration"):
        return LEASE_MS
    invisible = milliseconds(request.invisible_duration)
    if not SHORTEST_LEASE_MS <= invisible <= LONGEST_LEASE_MS:
        raise RocketmqRefusal(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisible time is {invisible} ms; it must be from {SHORTEST_LEASE_MS} to {LONGEST_LEASE_MS}",
        )
    return invisible


class LongPoll:
    """A call that waits for messages (`core.groups.group.Waiter`). It is served from any queue of the topic."""

    __slots__ = (
        "_attempt",
        "_call",
        "_client",
        "_deadline",
        "_group",
        "_invisible_ms",
        "_most",
        "_renews",
        "_session",
        "_source",
        "_topic",
        "_wants",
    )

    def __init__(
        self,
        session: GrpcSession,
        call: Call,
        request: ReceiveMessageRequest,
        topic: Topic,
        group: Group,
        wants: Wants | None,
    ) -> None:
        self._session = session
        self._call = call
        self._client = session.client(call)
        self._topic = topic
        self._group = group
        self._wants = wants
        self._most = max(1, min(request.batch_size, RECEIVE_BATCH))
        self._invisible_ms = _invisible(request)
        self._renews = request.auto_renew
        self._attempt = request.attempt_id
        self._source = ReceiveSource(group.name, topic.name, request.message_queue.id)
        self._deadline: Deadline | None = None

    def repeat(self) -> bool:
        """Answer with the messages of an answer that the client has not got. Return False if none of them is left."""
        leases, lsn = list[Lease](), 0
        for each in self._client.attempts.take(self._source, self._attempt):
            entries = each.stream.read(each.position, 1)
            if not entries or entries[0].position != each.position:
                continue
            try:
                handle, lsn = self._group.change(self._client.leases.take(each.receipt), self._invisible_ms)
            except BrokerError:  # acknowledged, or leased to another member
                continue
            leases.append(Lease(each.stream, entries[0], each.attempts, handle))
        if leases:
            self._answer_with(leases, lsn)
        return bool(leases)

    def serve(self) -> bool:
        """Answer with messages. Return False if there are none."""
        leases, size, lsn = list[Lease](), 0, 0
        while len(leases) < self._most and size < ANSWER_BYTES:
            most = min(_TOGETHER, self._most - len(leases))
            leased = self._group.lease(self._topic.streams, most, self._invisible_ms, self._wants)
            lsn = max(lsn, leased.lsn)
            leases += leased.leases
            size += sum(len(lease.entry.content) for lease in leased.leases)
            if len(leased.leases) < most:
                break
        if leases:
            self._answer_with(leases, lsn)
        return bool(leases)

    def _answer_with(self, leases: list[Lease], lsn: int) -> None:
        self._client.attempts.keep(self._source, self._attempt, leases)
        now, call = self._session.broker.engine.now, self._call
        numbers = {stream.ident: number for number, stream in enumerate(self._topic.streams)}
        call.send(ReceiveMessageResponse(status=ok()), lsn)
        for lease in leases:
            call.send(ReceiveMessageResponse(message=self._message(lease, numbers)), lsn)
            if self._renews:
                self._client.leases.add(self._group, lease.handle)
        call.send(ReceiveMessageResponse(delivery_timestamp=timestamp(now)), lsn)
        call.finish(lsn)

    def _message(self, lease: Lease, numbers: dict[int, int]) -> Message:
        entry, stream = lease.entry, lease.stream
        where = Whereabouts(
            stream.ident,
            entry.position,
            numbers.get(stream.ident, 0),
            entry.run.time,
            receipt(lease.handle),
            lease.attempts,
            self._invisible_ms,
        )
        return outgoing_message(self._topic.name, entry.run.envelope, entry.content, where)

    def wait(self, polling_ms: int) -> None:
        """Wait until there is something to lease, or the time is over."""
        engine = self._session.broker.engine
        self._deadline = engine.deadlines.set(engine.now + polling_ms, self._give_up)
        self._call.on_end = self._ended
        self._group.wait(self._topic.streams, self)

    def ready(self) -> None:
        """Try again, since there may be something to lease."""
        if self._call.is_over:
            return
        try:
            self._session.door.check(Operation.CONSUME_GROUP, exchange=self._topic.name, queue=self._group.name)
            if self._group.deleted or any(stream.deleted for stream in self._topic.streams):
                self._answer(_NONE)
            elif not self.serve():
                self._group.wait(self._topic.streams, self)
        except BrokerError as error:
            self._session.refusals.call(error)
            self._answer(refusal(error))

    def _give_up(self) -> None:
        self._deadline = None
        self._answer(_NONE)

    def _answer(self, status: Status) -> None:
        call = self._call
        call.send(ReceiveMessageResponse(status=status))
        call.send(ReceiveMessageResponse(delivery_timestamp=timestamp(self._session.broker.engine.now)))
        call.finish()

    def _ended(self) -> None:
        self._group.stop_waiting(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
