"""Half messages and decisions that arrive together: all of either are written in one record.

Clients send decisions one way, so nobody waits for an answer. Those that need more than that are left to `producing`:
signed and unusual ones, and those that are refused at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.conditions import BrokerError
from escrowmq.core.half.deciding import HalfVerdict
from escrowmq.core.half.state import HalfInput
from escrowmq.core.half.storing import HalfArrival
from escrowmq.wire.rocketmq import ids
from escrowmq.wire.rocketmq.decision_rights import DecisionRights
from escrowmq.wire.rocketmq.remoting.errors import RESULTS
from escrowmq.wire.rocketmq.remoting.frames import Command
from escrowmq.wire.rocketmq.remoting.producing import COMMIT, ROLL_BACK, refused

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection

MOST_BYTES: Final = 4 << 20
"""The size of the half messages that are written together, beyond the last one."""
_GIVEN: Final = {str(COMMIT): HalfInput.COMMIT, str(ROLL_BACK): HalfInput.ROLL_BACK}
_LONGEST_NUMBER: Final = 19

Answer = Callable[[int, str, int, bytes, int], None]
"""Writes an answer: number of 64 bits that finds the message, queue, offset, message id, number of the request."""


class WaitingHalf(NamedTuple):
    """A half message that is not stored yet, with the number of its queue."""

    arrival: HalfArrival
    queue: str
    request: Command


class HalfRuns:
    """The half messages and the decisions of one connection that are not written yet. `flush` must be called before
    anything else happens that they may affect.
    """

    __slots__ = ("_connection", "_halves", "_rights", "_size", "_verdicts")

    def __init__(self, connection: RemotingConnection) -> None:
        self._connection = connection
        self._rights: DecisionRights | None = None
        self._halves: dict[tuple[str, str], list[WaitingHalf]] = {}  # by topic and group
        self._size = 0
        self._verdicts: list[HalfVerdict] = []

    @property
    def decides(self) -> bool:
        """Whether there are decisions."""
        return bool(self._verdicts)

    @property
    def is_full(self) -> bool:
        """Whether the half messages must be stored before others are taken."""
        return self._size > MOST_BYTES

    def store(self, topic: str, group: str, waiting: WaitingHalf) -> None:
        """Take a half message that its client may store."""
        self._size += len(waiting.arrival.content)
        some = self._halves.get((topic, group))
        if some is None:
            self._halves[topic, group] = [waiting]
        else:
            some.append(waiting)

    def decide(self, request: Command) -> bool:
        """Take a decision. Return False, without any effect, if it has to be handled by itself."""
        connection, fields = self._connection, request.fields
        given = _GIVEN.get(fields.get("commitOrRollback", ""))
        text, offset = fields.get("tranStateTableOffset", ""), fields.get("commitLogOffset", "")
        if given is None or not request.is_one_way or not connection.is_anonymous or "AccessKey" in fields:
            return False
        if not (text.isdecimal() and offset.isdecimal() and len(text) <= len(offset) <= _LONGEST_NUMBER):
            return False
        number = int(text)
        if ids.half_of(int(offset)) != number:
            return False
        if self._rights is None:
            self._rights = DecisionRights(connection.broker.half, connection.login.door, connection.login.vhost_name)
        origin = self._rights.origin(number)
        if origin is None or fields.get("producerGroup", origin.key.group) != origin.key.group:
            return False
        self._verdicts.append(HalfVerdict(number, given, fields.get("msgId", "")))
        return True

    def flush(self, answer: Answer) -> int:
        """Write everything. Return the LSN up to which the log must be synced before the answers, which `answer`
        writes. Refusals leave at once.
        """
        if self._verdicts:
            self._decide()
        lsn = 0
        if self._halves:
            halves, self._halves, self._size = self._halves, {}, 0
            for (topic, group), some in halves.items():
                lsn = max(lsn, self._store(topic, group, some, answer))
        return lsn

    def _decide(self) -> None:
        connection = self._connection
        verdicts, self._verdicts = self._verdicts, []
        if self._rights is not None:
            self._rights.clear()
        results = connection.broker.half.decide_each(connection.login.vhost_name, verdicts)
        for verdict, result in zip(verdicts, results, strict=True):
            if isinstance(result, BrokerError):
                refused(connection, verdict.number, result)
                connection.login.refusals.call(result)

    def _store(self, topic: str, group: str, some: list[WaitingHalf], answer: Answer) -> int:
        connection = self._connection
        login, lsn = connection.login, 0
        login.traffic.received += len(some)
        results = connection.broker.half.store_each(
            login.vhost_name,
            topic,
            [waiting.arrival for waiting in some],
            group=group,
            user=login.user,
            producer=connection.producer,
        )
        for (arrival, queue, request), result in zip(some, results, strict=True):
            if isinstance(result, BrokerError):
                login.refusals.call(result)
                connection.respond(request, Command(RESULTS[result.condition], remark=result.text))
                continue
            lsn = result.lsn
            if not request.is_one_way:
                number = result.number
                answer(ids.half_offset(number), queue, number, arrival.message_id.encode(), request.opaque)
        return lsn
