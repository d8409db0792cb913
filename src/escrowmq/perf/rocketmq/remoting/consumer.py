"""A connection that pulls: one request for each queue, each with the offset up to which messages were handled."""

from __future__ import annotations

from struct import Struct
from typing import Final

from escrowmq.perf.errors import PerfError
from escrowmq.perf.peer import Consumer
from escrowmq.perf.rocketmq.properties import parsed
from escrowmq.perf.rocketmq.remoting.answers import RemotingAnswer, answers
from escrowmq.perf.rocketmq.remoting.caller import RemotingCaller
from escrowmq.perf.rocketmq.remoting.encoding import command, stamp_of
from escrowmq.perf.rocketmq.remoting.producer import ONE_WAY
from escrowmq.perf.sampling import SAMPLED_BYTES, PublishedContents
from escrowmq.perf.totals import Totals

PULL: Final = 11
UPDATE_OFFSET: Final = 15
_COMMITS_AND_WAITS: Final = "7"  # commit the offset, wait for messages, subscription in the request
_WAITS: Final = "6"
_WAIT_MS: Final = "15000"
_EMPTY: Final = frozenset({19, 20, 21})
"""No message in time, none that passes the filter, an offset that has moved."""
_SIZE: Final = Struct(">i")
_BODY_AT: Final = 84
"""Where a stored message whose addresses are of IPv4 has the length of its body."""


class PullingConsumer(Consumer):
    """Pulls from some queues of a topic for a group."""

    def __init__(
        self,
        caller: RemotingCaller,
        totals: Totals,
        label: str,
        contents: PublishedContents,
        *,
        topic: str,
        group: str,
        offsets: dict[int, int],
        batch: int,
        stamped: bool,
    ) -> None:
        """`offsets` are those at which the queues begin. `batch` is the most messages in an answer."""
        super().__init__(caller.socket, totals, label)
        self._contents = contents
        self._topic = topic
        self._group = group
        self._queues = list(offsets)
        self._offsets = dict(offsets)
        self._batch = batch
        self._stamped = stamped
        self._started = False
        self._rounds = 0

    @property
    def subscribed(self) -> bool:
        return self._started

    def start(self, now: int) -> None:
        self._started = True
        self._append(b"".join(self._pull(queue) for queue in self._queues), now)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent:
            self._send(self._unsent)

    def finish(self, now: int) -> None:
        fields = {"consumerGroup": self._group, "topic": self._topic}
        self._append(
            b"".join(
                command(
                    UPDATE_OFFSET,
                    fields | {"queueId": str(queue), "commitOffset": str(self._offsets[queue])},
                    flag=ONE_WAY,
                )
                for queue in self._queues
            ),
            now,
        )

    def parse(self, data: bytearray, end: int) -> int:
        used, pulls = [0], []
        for answer in answers(data, end, used):
            if answer.is_response:
                queue = self._queues[answer.opaque % len(self._queues)]
                self._take(queue, answer)
                pulls.append(self._pull(queue))
        if pulls:
            self._append(b"".join(pulls), self.now)
        return used[0]

    def _take(self, queue: int, answer: RemotingAnswer) -> None:
        """Count the messages of one answer."""
        if answer.code and answer.code not in _EMPTY:
            raise PerfError(f"the broker refused a pull ({self.label}): {answer.remark}")
        self._offsets[queue] = int(answer.value("nextBeginOffset"))
        if answer.code:
            return
        body, at, last, count = answer.body, 0, 0, 0
        while at < len(body):
            last, count = at, count + 1
            at += _SIZE.unpack_from(body, at)[0]
            if self._stamped:
                self._read(body[last:at])
        if not self._stamped and count:
            self._read(body[last:at])
        self.totals.consumed += count
        self.totals.consumed_at = self.now

    def _read(self, message: bytes) -> None:
        """Compare one message with those that were published."""
        start = _BODY_AT + 4
        end = start + _SIZE.unpack_from(message, _BODY_AT)[0]
        body = message[start:end]
        at = end + 1 + message[end] + 2
        properties = parsed(message[at:].decode())
        if self._stamped:
            self.totals.delivery.record(self.now - stamp_of(body))
        self._contents.check(properties.get("KEYS"), None, len(body), body[:SAMPLED_BYTES])

    def _pull(self, queue: int) -> bytes:
        self._rounds += 1
        count = len(self._queues)
        offset = self._offsets[queue]
        fields = {
            "consumerGroup": self._group,
            "topic": self._topic,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": str(self._batch),
            "sysFlag": _COMMITS_AND_WAITS if offset > 0 else _WAITS,
            "commitOffset": str(offset),
            "suspendTimeoutMillis": _WAIT_MS,
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        return command(PULL, fields, opaque=self._rounds * count + self._queues.index(queue))
