"""Calls that arrive together: normal messages are stored in runs, half messages in one record, and so are decisions.

Only the usual calls are gathered. Those that need more, and those that are refused, are left to `publishing` and
`transactions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError
from escrowmq.core.half.deciding import HalfVerdict
from escrowmq.core.half.state import HalfInput
from escrowmq.core.half.storing import HalfArrival
from escrowmq.wire.rocketmq.content import envelope_of
from escrowmq.wire.rocketmq.decision_rights import DecisionRights
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, named, ok, refusal
from escrowmq.wire.rocketmq.grpc.incoming import IncomingMessage, read_message
from escrowmq.wire.rocketmq.grpc.kinds import check_type
from escrowmq.wire.rocketmq.grpc.results import sent_one
from escrowmq.wire.rocketmq.grpc.transactions import decision_refusal
from escrowmq.wire.rocketmq.proto.definition_pb2 import TransactionResolution
from escrowmq.wire.rocketmq.proto.service_pb2 import EndTransactionResponse, SendMessageResponse, SendResultEntry

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.clients import GrpcClient
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession
    from escrowmq.wire.rocketmq.proto.definition_pb2 import Resource
    from escrowmq.wire.rocketmq.proto.service_pb2 import EndTransactionRequest, SendMessageRequest

MOST_BYTES: Final = 4 << 20
"""The size of the messages that are written together, beyond the last one."""
_GIVEN: Final[Mapping[int, HalfInput]] = MappingProxyType(
    {TransactionResolution.COMMIT: HalfInput.COMMIT, TransactionResolution.ROLLBACK: HalfInput.ROLL_BACK}
)
_HALF: Final = "transaction"
_GATHERED: Final = frozenset({"normal", _HALF})
_ENDED: Final = EndTransactionResponse(status=ok()).SerializeToString()


class _Publish(NamedTuple):
    """A normal message that is not stored yet."""

    call: Call
    message_id: str
    stream: StreamQueue


class GatheredCalls:
    """The calls of one connection that are not carried out yet. `flush` must be called before anything else happens."""

    __slots__ = ("_allowed", "_ends", "_halves", "_publishes", "_rights", "_runs", "_session", "_size", "_topics")

    def __init__(self, session: GrpcSession) -> None:
        self._session = session
        self._topics: dict[str, Topic] = {}
        self._allowed: dict[tuple[str, str, str], None] = {}  # topics, tags and types of messages that were checked
        self._runs: dict[StreamQueue, list[tuple[Envelope, list[bytes]]]] = {}
        self._publishes: list[_Publish] = []
        self._halves: dict[tuple[str, GrpcClient], list[tuple[HalfArrival, Call]]] = {}
        self._ends: list[tuple[HalfVerdict, Call]] = []
        self._rights = DecisionRights(session.broker.half, session.door, session.vhost.name)
        self._size = 0

    def send(self, call: Call, request: SendMessageRequest) -> bool:
        """Take a send. Return False, without any effect, if it has to be handled by itself."""
        session = self._session
        if len(request.messages) != 1 or session.is_blocked():
            return False
        message = request.messages[0]
        try:
            topic = self._topic(message.topic)
            incoming = read_message(message, topic.name, session.broker.engine.now)
            if incoming.kind not in _GATHERED or incoming.immunity_ms:
                return False
            self._check(topic, incoming)
            client = session.client(call)
        except (BrokerError, RocketmqRefusal):
            return False
        if self._size > MOST_BYTES:
            self.flush()
        queue = session.next_partition(topic)
        envelope, content, stream = envelope_of(topic.name, incoming.tag), incoming.content(queue), topic.streams[queue]
        self._size += len(content)
        if incoming.kind == _HALF:
            arrival = HalfArrival(incoming.message_id, envelope, content, stream)
            self._halves.setdefault((topic.name, client), []).append((arrival, call))
            return True
        if self._ends:
            self._decide()
        runs = self._runs.setdefault(stream, [])
        if runs and runs[-1][0] is envelope:
            runs[-1][1].append(content)
        else:
            runs.append((envelope, [content]))
        self._publishes.append(_Publish(call, incoming.message_id, stream))
        return True

    def _topic(self, resource: Resource) -> Topic:
        name = named(resource)
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._session.topic(resource)
        return topic

    def _check(self, topic: Topic, incoming: IncomingMessage) -> None:
        """Raises BrokerError or RocketmqRefusal unless the user may send such messages, and the topic takes them."""
        key = topic.name, incoming.tag, incoming.kind
        if key in self._allowed:
            return
        door = self._session.door
        door.check_publish(topic.name, (incoming.tag,))
        check_type(topic.message_type, incoming.kind)
        if incoming.kind == _HALF:
            door.check(Operation.STORE_HALF, exchange=topic.name, key=incoming.tag)
        self._allowed[key] = None

    def end(self, call: Call, request: EndTransactionRequest) -> bool:
        """Take a decision. Return False, without any effect, if it has to be handled by itself."""
        session, ident = self._session, request.transaction_id
        given = _GIVEN.get(request.resolution)
        if given is None or not ident or ident != request.message_id:
            return False
        number = session.broker.half.number(session.vhost.name, named(request.topic), ident)
        if not number or self._rights.origin(number) is None:
            return False
        if self._publishes:
            self._publish()  # a commit stores its message after those that were sent before it
        self._ends.append((HalfVerdict(number, given, ident), call))
        return True

    def flush(self) -> None:
        """Carry out all calls, and answer them when they are on disk."""
        if self._topics:
            self._topics.clear()
            self._allowed.clear()
        self._size = 0
        if self._publishes:
            self._publish()
        if self._ends:
            self._decide()
        if self._halves:
            self._store()

    def _publish(self) -> None:
        publishes, self._publishes = self._publishes, []
        runs, self._runs = self._runs, {}
        traffic = self._session.traffic
        traffic.received += len(publishes)
        traffic.answered(len(publishes))
        positions = {stream: stream.next_position for stream in runs}
        lsn = self._session.broker.engine.publish_each(
            (envelope, contents, (stream,)) for stream, some in runs.items() for envelope, contents in some
        ).lsn
        for call, message_id, stream in publishes:
            position = positions[stream]
            positions[stream] = position + 1
            call.answer_with(sent_one(message_id, position - 1), lsn)

    def _decide(self) -> None:
        session, ends = self._session, self._ends
        self._ends = []
        self._rights.clear()
        results = session.broker.half.decide_each(session.vhost.name, [verdict for verdict, _ in ends])
        for (_, call), result in zip(ends, results, strict=True):
            if isinstance(result, BrokerError):
                call.answer(EndTransactionResponse(status=decision_refusal(session, result)))
            else:
                call.answer_with(_ENDED, result)

    def _store(self) -> None:
        session, halves = self._session, self._halves
        self._halves = {}
        for (topic, client), some in halves.items():
            arrivals = [arrival for arrival, _ in some]
            results = session.broker.half.store_each(
                session.vhost.name, topic, arrivals, group=topic, user=session.user, producer=client
            )
            client.produces(topic)
            session.traffic.received += len(some)
            for (arrival, call), result in zip(some, results, strict=True):
                if isinstance(result, BrokerError):
                    session.refusals.call(result)
                    status = refusal(result)
                    call.answer(SendMessageResponse(status=status, entries=[SendResultEntry(status=status)]))
                else:
                    call.answer_with(sent_one(arrival.message_id, 0), result.lsn)
