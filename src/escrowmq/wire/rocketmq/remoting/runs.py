"""Sends that arrive together: normal messages are stored in runs, half messages in one record, and all are answered in
one piece.

A client that keeps many sends in flight sends them in one write. Whatever they share is looked up once for all of them:
topic, permissions and flags. Sends that need more than that are left to `sending`: batches, delayed messages, retries,
signed requests, and those that are refused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError
from escrowmq.core.half.storing import HalfArrival
from escrowmq.wire.rocketmq import ids, properties
from escrowmq.wire.rocketmq.content import TRANSACTION_COMMITTED, envelope_of, head_of
from escrowmq.wire.rocketmq.names import tag_fault
from escrowmq.wire.rocketmq.remoting.codes import Code
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.frames import HEAD, JSON, VERSION
from escrowmq.wire.rocketmq.remoting.half_runs import HalfRuns, WaitingHalf
from escrowmq.wire.rocketmq.remoting.messages import LONGEST_PROPERTIES
from escrowmq.wire.rocketmq.topics import TRANSACTION, takes

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

NORMAL: Final = "normal"
_SHARED: Final = ("a", "b", "f", "h")
"""Producer group, topic, system flag and flag: the fields that decide where and how a message is stored."""
_ABSENT: Final = frozenset({None, "0", "false"})
_PREPARED: Final = frozenset({None, "0", "4"})
"""The system flags of a half message: clients mark it as prepared, or not at all."""
_SPECIAL: Final = ("DELAY", "TIMER_", properties.MESSAGE_GROUP, properties.CHECK_IMMUNITY, properties.TRANSACTION_ID)
"""Parts of the properties of messages that are neither normal ones nor plain half messages."""
_HALF: Final = f"{properties.TRANSACTION}\x01true\x02"
_LONGEST_NUMBER: Final = 18
_HEADER: Final = (
    b'{"code":0,"extFields":{"MSG_REGION":"DefaultRegion","TRACE_ON":"true","msgId":"%b%016X","queueId":"%b",'
    b'"queueOffset":"%d","transactionId":"%b"},"flag":1,"language":"JAVA","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":' + b"%d}" % VERSION
)
_HEAD: Final = struct.Struct(">II")


class _SendTarget(NamedTuple):
    """Where sends with the same shared fields go: the streams of the topic by their numbers as text, and whether it
    takes normal messages and half messages.
    """

    topic: str
    streams: dict[str, StreamQueue]
    normal: bool
    half: bool


class _Parts(NamedTuple):
    """The parts of one send that differ from those of the others."""

    queue: str
    key: bytes
    tag: str
    text: bytes


class _WaitingSend(NamedTuple):
    """A send that is not stored yet, as its answer needs it."""

    stream: StreamQueue
    queue: str
    key: bytes
    opaque: int
    is_one_way: bool


class SendRuns:
    """The sends of one connection that are not stored yet. `flush` must be called before anything else happens."""

    __slots__ = ("_answers", "_connection", "_halves", "_joined", "_lsn", "_prefix", "_sends", "_streams", "_targets")

    def __init__(self, connection: RemotingConnection) -> None:
        self._connection = connection
        self._targets: dict[tuple[str | None, ...], _SendTarget | None] = {}
        self._joined: dict[tuple[str, str, str], None] = {}  # topics, tags and groups of checked half messages
        self._streams: dict[StreamQueue, list[tuple[Envelope, list[bytes]]]] = {}
        self._sends: list[_WaitingSend] = []
        self._halves = HalfRuns(connection)
        self._answers: list[bytes] = []
        self._lsn = 0
        host, port = connection.address
        self._prefix = ids.message_id(host, port, 0)[:-16].encode()

    def take(self, request: Command) -> bool:
        """Take a send in its second version, or a decision. Return False, without any effect, if it has to be handled
        by itself.
        """
        if request.code == Code.SEND_V2:
            return self._take_send(request)
        if request.code != Code.END_TRANSACTION:
            return False
        if self._sends:
            self.flush()  # a commit stores its message after those that were sent before it
        return self._halves.decide(request)

    def _take_send(self, request: Command) -> bool:
        get = request.fields.get
        shared = tuple(map(get, _SHARED))
        targets = self._targets
        target = targets[shared] if shared in targets else self._find(shared)
        queue, born, raw = get("e"), get("g", "0"), get("i", "")
        if target is None or queue not in target.streams or not born.isdecimal() or len(born) > _LONGEST_NUMBER:
            return False
        if get("j") not in _ABSENT or get("m") not in _ABSENT or get("AccessKey") or request.form != JSON:
            return False
        if any(map(raw.__contains__, _SPECIAL)):
            return False
        text = raw.encode("utf-8", "surrogateescape")
        key = properties.octets_of(text, properties.UNIQUE_KEY) or b""
        tag = properties.value_of(text, properties.TAGS) or ""
        if not key.isalnum() or (tag and tag_fault(tag)) or len(text) > LONGEST_PROPERTIES:
            return False
        if len(request.body) > self._connection.largest_body:
            return False
        parts = _Parts(queue, key, tag, text)
        if properties.TRANSACTION in raw:
            return raw.count(_HALF) == 1 and target.half and self._store_half(target, parts, int(born), request)
        return target.normal and get("f") in _ABSENT and self._add(target, parts, int(born), request)

    def _add(self, target: _SendTarget, parts: _Parts, born_ms: int, request: Command) -> bool:
        if self._halves.decides:
            self._flush_halves()
        connection, (queue, key, tag, text) = self._connection, parts
        stream = target.streams[queue]
        content = b"".join((head_of(0, 0, born_ms, int(queue), 0, connection.born, len(text)), text, request.body))
        envelope = envelope_of(target.topic, tag)
        runs = self._streams.get(stream)
        if runs is None:
            runs = self._streams[stream] = []
        if runs and runs[-1][0] is envelope:
            runs[-1][1].append(content)
        else:
            try:
                connection.login.door.check_publish(target.topic, (tag,))
            except BrokerError:
                return False
            runs.append((envelope, [content]))
        self._sends.append(_WaitingSend(stream, queue, key, request.opaque, request.is_one_way))
        return True

    def _store_half(self, target: _SendTarget, parts: _Parts, born_ms: int, request: Command) -> bool:
        """Take a half message, as `producing.store_half` does."""
        connection, (queue, key, tag, text) = self._connection, parts
        group = properties.value_of(text, properties.PRODUCER_GROUP)
        if not group or not text.endswith(b"\x02"):
            return False
        text += b"%b\x01%b\x02" % (properties.TRANSACTION_ID.encode(), key)
        if len(text) > LONGEST_PROPERTIES:
            return False
        head = head_of(0, TRANSACTION_COMMITTED, born_ms, int(queue), 0, connection.born, len(text))
        login, producer = connection.login, connection.producer
        if (target.topic, tag, group) not in self._joined:
            try:
                login.door.check_publish(target.topic, (tag,))
                login.door.check(Operation.STORE_HALF, exchange=target.topic, key=tag)
                producer.join(group)
            except (BrokerError, RequestFault):
                return False
            self._joined[target.topic, tag, group] = None
        content = b"".join((head, text, request.body))
        arrival = HalfArrival(key.decode(), envelope_of(target.topic, tag), content, target.streams[queue])
        self._halves.store(target.topic, group, WaitingHalf(arrival, queue, request))
        if self._halves.is_full:
            self._flush_halves()
        return True

    def _answer(self, place: int, queue: str, offset: int, key: bytes, opaque: int) -> None:
        header = _HEADER % (self._prefix, place, queue.encode(), offset, key, opaque)
        self._answers += (_HEAD.pack(HEAD - 4 + len(header), len(header)), header)

    def _find(self, shared: tuple[str | None, ...]) -> _SendTarget | None:
        """Return where such sends go, for as long as nothing else happens; None if they need more than this."""
        connection = self._connection
        group, name, system_flag, flag = shared
        found = None
        if group and name and system_flag in _PREPARED and flag in _ABSENT and connection.is_anonymous:
            topic = connection.catalogue.find(name)
            try:
                connection.publishes()
            except RequestFault:
                topic = None
            if topic is not None:
                kind = topic.message_type
                streams = {str(number): stream for number, stream in enumerate(topic.streams)}
                found = _SendTarget(name, streams, takes(kind, NORMAL), takes(kind, TRANSACTION))
        self._targets[shared] = found
        return found

    def flush(self) -> None:
        """Store the sends, and answer them when they are on disk (DUR-1)."""
        if self._targets:
            self._targets.clear()
            self._joined.clear()
        if self._sends:
            self._publish()
        self._flush_halves()
        if self._answers:
            answers, self._answers = self._answers, []
            lsn, self._lsn = self._lsn, 0
            self._connection.put(b"".join(answers), lsn)

    def _flush_halves(self) -> None:
        self._lsn = max(self._lsn, self._halves.flush(self._answer))

    def _publish(self) -> None:
        sends, self._sends = self._sends, []
        streams, self._streams = self._streams, {}
        positions = {stream: stream.next_position for stream in streams}
        receipt = self._connection.engine.publish_each(
            (envelope, contents, (stream,)) for stream, runs in streams.items() for envelope, contents in runs
        )
        self._lsn = max(self._lsn, receipt.lsn)
        traffic = self._connection.login.traffic
        traffic.received += len(sends)
        traffic.answered(len(sends) - sum([is_one_way for *_, is_one_way in sends]))
        for stream, queue, key, opaque, is_one_way in sends:
            position = positions[stream]
            positions[stream] = position + 1
            if not is_one_way:
                place = ids.place_offset(ids.StreamPlace(stream.ident, position))
                self._answer(place, queue, position - 1, key, opaque)
