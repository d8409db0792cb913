"""A connection that sends: normal messages, batches, or half messages with their decisions."""

from __future__ import annotations

import json
import sys
from typing import Final

from escrowmq.perf.confirms import ConfirmTracker
from escrowmq.perf.errors import PerfError
from escrowmq.perf.pace import Pace
from escrowmq.perf.peer import Producer
from escrowmq.perf.rocketmq.properties import FIRST_NUMBER
from escrowmq.perf.rocketmq.remoting.answers import CHECK_TRANSACTION, RemotingAnswer, answers
from escrowmq.perf.rocketmq.remoting.caller import RemotingCaller
from escrowmq.perf.rocketmq.remoting.encoding import SendBlock, SendTarget, command
from escrowmq.perf.totals import Totals

HEARTBEAT: Final = 34
END_TRANSACTION: Final = 37
ONE_WAY: Final = 2
_COMMIT: Final = "8"
_HEARTBEAT_EVERY: Final = 20_000_000_000
_OFFSET_DIGITS: Final = 16
_BUSY: Final = 2
"""The answer to which clients send again."""


class RemotingSender(Producer):
    """Keeps sends in flight. A transaction is a half message and, once that is answered, its commit.

    Like the Java client, it sends commits one way, so they have no answer: only the delivery shows that they arrived.
    """

    def __init__(
        self,
        caller: RemotingCaller,
        totals: Totals,
        label: str,
        block: SendBlock,
        target: SendTarget,
        *,
        count: int | None,
        window: int,
        stamped: bool,
    ) -> None:
        """`count` and `window` are messages; None means to send until `stop`."""
        super().__init__(caller.socket, totals, label)
        self._block = block
        self._target = target
        self._limit = sys.maxsize if count is None else -(-count // block.each)
        self._window = max(window // block.each, 1)
        self._stamped = stamped
        self._sent = 0
        self._confirms = ConfirmTracker()
        self._pace: Pace | None = None
        self._probe: tuple[int, int] | None = None
        """The send whose answer is timed, one at a time: number, time."""
        self._ends: list[bytes] = []
        self._again: list[int] = []  # sends that the broker was too busy to take
        self._heartbeat = command(
            HEARTBEAT,
            {},
            json.dumps({"clientID": label, "producerDataSet": [{"groupName": target.group}]}).encode(),
            flag=ONE_WAY,
        )
        self._alive_at = 0

    @property
    def finished(self) -> bool:
        return not self._unsent and self._sent >= self._limit and self._confirms.floor == self._sent

    def due_at(self) -> int | None:
        waits = self._pace is None or self._unsent or self._sent >= self._limit or not self._room_in_window()
        return None if waits or self._pace is None else self._pace.time_of(self._sent * self._block.each)

    def set_pace(self, rate: float, starts: list[int]) -> None:
        self._pace = Pace(rate, starts[0])

    def stop(self) -> None:
        self._limit = min(self._limit, self._sent)

    def wake(self, now: int) -> None:
        self.pump(now)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent and not self._send(self._unsent):
            return
        data = self._next(now)
        if data:
            self._send(memoryview(data))
        else:
            self.wants_write = False

    def _next(self, now: int) -> bytes:
        pieces, self._ends = self._ends, []
        if now - self._alive_at >= _HEARTBEAT_EVERY:
            self._alive_at = now
            pieces.append(self._heartbeat)
        each = self._block.each
        again, self._again = self._again, []
        pieces += [self._block.take(number, 1, now if self._stamped else None) for number in again]
        room = min(self._limit - self._sent, self._room_in_window())
        if self._pace is not None:
            room = min(room, self._pace.due(now) // each - self._sent)
        if room > 0:
            stamp = None
            if self._stamped:
                stamp = now if self._pace is None else self._pace.time_of(self._sent * each)
            pieces.append(self._block.take(self._sent, room, stamp))
            self._sent += room
            self.totals.published += room * each
            self.totals.published_at = now
            if self._probe is None:
                self._probe = self._sent, now
        return b"".join(pieces)

    def _room_in_window(self) -> int:
        return self._window - self._sent + self._confirms.confirmed

    def parse(self, data: bytearray, end: int) -> int:
        used = [0]
        for answer in answers(data, end, used):
            if answer.is_response:
                self._answered(answer)
            elif answer.code == CHECK_TRANSACTION:
                fields = answer.fields
                self._decide(fields, fields["msgId"], from_check=True)
        if used[0]:
            self.pump(self.now)
        return used[0]

    def _answered(self, answer: RemotingAnswer) -> None:
        number = answer.opaque - FIRST_NUMBER + 1
        if answer.code == _BUSY:
            self._again.append(number - 1)
            return
        if answer.code:
            raise PerfError(f"the broker refused a send ({self.label}): {answer.remark}")
        each = self._block.each
        self.totals.confirmed += self._confirms.confirm(number, False, self._sent) * each
        self.totals.confirmed_at = self.now
        if self._probe is not None and self._confirms.floor >= self._probe[0]:
            self.totals.answer.record(self.now - self._probe[1])
            self._probe = None
        if self._target.transactional:
            offset = int(answer.value("msgId")[-_OFFSET_DIGITS:], 16)
            found = {"tranStateTableOffset": answer.value("queueOffset"), "commitLogOffset": str(offset)}
            self._decide(found, answer.value("transactionId"), from_check=False)

    def _decide(self, offsets: dict[str, str], ident: str, *, from_check: bool) -> None:
        """Commit a half message."""
        fields = {
            "topic": self._target.topic,
            "producerGroup": self._target.group,
            "tranStateTableOffset": offsets["tranStateTableOffset"],
            "commitLogOffset": offsets["commitLogOffset"],
            "commitOrRollback": _COMMIT,
            "fromTransactionCheck": "true" if from_check else "false",
            "msgId": ident,
            "transactionId": ident,
        }
        self._ends.append(command(END_TRANSACTION, fields, flag=ONE_WAY))
