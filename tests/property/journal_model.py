"""A miniature broker over the journal, and the outside view of its guarantees: the oracle of the journal's properties.

Every operation is one record with a running number, so that the recovered state can be compared with the history. It
must be a prefix of the history and contain everything that was reported as synced, and each live message must be
readable with its original content.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from escrowmq.journal import errors
from escrowmq.journal.journal import SNAPSHOT_LSN, Journal
from escrowmq.journal.memory import Faults, MemoryStorage

PUT, SETTLE, MOVE, STATE, LIVE = range(5)
_NUMBER = struct.Struct("<QQ")
_LIVE = struct.Struct("<QQI")
BUCKETS = 3600

Op = tuple[str, int]


class Violation(AssertionError):  # noqa: N818 - a finding, not an error of the program
    """The journal has violated a guarantee."""


class Unreadable(Violation):
    """A live message is refused as damaged. This is right if the medium was damaged, otherwise a violation."""


@dataclass
class History:
    """The history seen from outside. `states[k]` are the live messages after k operations, by serial number."""

    states: list[dict[int, bytes]] = field(default_factory=lambda: [{}])
    synced: int = 0

    @property
    def count(self) -> int:
        return len(self.states) - 1

    def cut(self, count: int) -> None:
        del self.states[count + 1 :]
        self.synced = count


class Broker:
    """One run of the process."""

    def __init__(self, storage: MemoryStorage, history: History, *, segment_bytes: int = 6000) -> None:
        """Open and replay. Raises what the journal raises, and Violation if the recovered state is not allowed."""
        self.history = history
        self.journal = Journal.open(
            storage, segment_bytes=segment_bytes, batch_bytes=4000, journal_id=b"property-testing"
        )
        self.live: dict[int, tuple[int, int]] = {}
        self.number = 0
        self.lsn_of_number: list[tuple[int, int]] = []
        for lsn, kind, payload, _ in self.journal.replay():
            self._apply(lsn, kind, bytes(payload))

    def _apply(self, lsn: int, kind: int, payload: bytes) -> None:
        if (lsn == SNAPSHOT_LSN) != (kind in (STATE, LIVE)):
            raise Violation(f"record kind {kind} at LSN {lsn}")
        if kind == STATE:
            self.number = _NUMBER.unpack(payload)[0]
        elif kind == LIVE:
            serial, place, size = _LIVE.unpack(payload)
            self.live[serial] = (place, size)
            self.journal.retain(place, 1)
        else:
            number, serial = _NUMBER.unpack_from(payload)
            if number != self.number + 1:
                raise Violation(f"operation {number} follows {self.number}")
            self.number = number
            if kind != PUT:
                self.journal.release(self.live.pop(serial)[0], 1)
            if kind != SETTLE:
                self.live[serial] = (lsn, len(payload))
                self.journal.retain(lsn, 1)

    def verify(self, *, allow_loss: bool = False) -> None:
        """Check that the state is one of the history's and not older than guaranteed. The history continues from it."""
        if self.number > self.history.count:
            raise Violation(f"{self.number} operations recovered, but only {self.history.count} were done")
        if self.number < self.history.synced and not allow_loss:
            raise Violation(f"{self.number} operations recovered, but {self.history.synced} were synced")
        expected = self.history.states[self.number]
        if set(self.live) != set(expected):
            raise Violation(f"live messages {sorted(self.live)}, expected {sorted(expected)}")
        self.verify_reads()
        self.history.cut(self.number)

    def verify_reads(self) -> None:
        for serial, body in self.history.states[self.number].items():
            place, size = self.live[serial]
            try:
                found = self.journal.read(place, size)[_NUMBER.size :]
            except errors.JournalDamaged as error:
                raise Unreadable(str(error)) from error
            if found != body:
                raise Violation(f"message {serial} at LSN {place} has other content")

    def _record(self, kind: int, serial: int, body: bytes, state: dict[int, bytes]) -> int:
        lsn = self.journal.append(kind, _NUMBER.pack(self.number + 1, serial), body)
        self.number += 1
        self.history.states.append(state)
        self.lsn_of_number.append((self.journal.end_lsn, self.number))
        return lsn

    def put(self, body: bytes) -> None:
        serial = self.number + 1
        lsn = self._record(PUT, serial, body, {**self.history.states[-1], serial: body})
        self.live[serial] = (lsn, _NUMBER.size + len(body))
        self.journal.retain(lsn, 1)

    def settle(self, which: int) -> None:
        if self.live:
            serial = sorted(self.live)[which % len(self.live)]
            state = {k: v for k, v in self.history.states[-1].items() if k != serial}
            self._record(SETTLE, serial, b"", state)
            self.journal.release(self.live.pop(serial)[0], 1)

    def flush(self, batches: int) -> None:
        for _ in range(batches):
            batch = self.journal.take_batch(self.number)
            if batch is None:
                return
            self.verify_reads()
            batch.write()
            self.verify_reads()
            self.journal.batch_done(batch)
            while self.lsn_of_number and self.lsn_of_number[0][0] <= self.journal.synced_lsn:
                self.history.synced = self.lsn_of_number.pop(0)[1]

    def snapshot(self) -> None:
        records = [(STATE, _NUMBER.pack(self.number, 0))]
        records += [(LIVE, _LIVE.pack(serial, *self.live[serial])) for serial in sorted(self.live)]
        snapshot = self.journal.begin_snapshot(records, self.number)
        try:
            snapshot.write()
        finally:
            self.journal.snapshot_done(snapshot)
        self.flush(BUCKETS)
        self.housekeep()

    def housekeep(self) -> None:
        while (work := self.journal.housekeeping()) is not None:
            work()
        # Segments are deleted by the first call after the sync of the record about them.

    def compact(self) -> None:
        for segment in self.journal.sparse_segments(0.9):
            inside = [s for s in self.live if segment.first_lsn <= self.live[s][0] < segment.end_lsn]
            if len(inside) != segment.live:
                raise Violation(f"{segment} but {len(inside)} live")
            for serial in sorted(inside):
                place, size = self.live[serial]
                body = self.journal.read(place, size)[_NUMBER.size :]
                lsn = self._record(MOVE, serial, body, dict(self.history.states[-1]))
                self.live[serial] = (lsn, size)
                self.journal.retain(lsn, 1)
                self.journal.release(place, 1)


class World:
    """A disk, and the processes that run on it one after the other. `step` raises Violation."""

    def __init__(self, seed: int) -> None:
        self.content = random.Random(seed)
        self.trouble = random.Random(f"trouble {seed}")
        self.storage = MemoryStorage(random.Random(seed))
        self.history = History()
        self.broker = Broker(self.storage, self.history)

    def step(self, op: Op) -> None:
        name, n = op
        broker, faults = self.broker, self.storage.faults
        try:
            match name:
                case "put":
                    broker.put(self.content.randbytes(self.content.choice((0, 3, 100, 700, n, n, n, 8 * n))))
                case "settle":
                    broker.settle(n)
                case "flush":
                    broker.flush(1 + n % 3)
                case "snapshot":
                    broker.snapshot()
                case "housekeep":
                    broker.housekeep()
                case "compact":
                    broker.compact()
                case "close":
                    broker.flush(BUCKETS)
                    broker.journal.close()
                    self.restart()
                case "kill":
                    self.restart()
                case "crash":
                    self.storage.crash()
                    self.restart()
                case "sync fails":
                    faults.fail_sync_in = 1 + n % 4
                case "power fails":
                    faults.dies_in = 1 + n % 6
                case "disk full":
                    faults.capacity = sum(map(self.storage.size, self.storage.names())) + n
        except (errors.JournalFailed, errors.SnapshotFailed, OSError):
            self.recover(crash=n % 2 == 0)

    def recover(self, *, crash: bool) -> None:
        """After a failure, end the process, with or without the machine, and start it again. It may still fail."""
        if crash or self.storage.faults.dies_in is not None:
            self.storage.crash()
        self.storage.faults = Faults()
        if self.trouble.random() < 0.4:  # the disk still fails
            self.storage.faults.fail_sync_in = self.trouble.randrange(1, 4)
        self.restart()

    def restart(self) -> None:
        try:
            broker = Broker(self.storage, self.history)
        except errors.JournalFailed:
            self.recover(crash=self.trouble.random() < 0.3)
            return
        except (errors.JournalDamaged, errors.JournalVersionUnknown) as error:
            raise Violation(f"refused to start although the medium was not damaged: {error}") from error
        except (struct.error, LookupError, ValueError) as error:
            raise Violation(f"the replay yielded a record that was never written: {error!r}") from error
        broker.verify()
        self.broker = broker

    def run(self, ops: list[Op]) -> None:
        for op in ops:
            self.step(op)
        self.step(("crash", 0))


WEIGHTS = {
    "put": 30,
    "settle": 10,
    "flush": 15,
    "snapshot": 4,
    "housekeep": 4,
    "compact": 3,
    "close": 1,
    "kill": 2,
    "crash": 3,
    "sync fails": 3,
    "power fails": 4,
    "disk full": 1,
}


def random_ops(rng: random.Random, count: int) -> list[Op]:
    return [(name, rng.randrange(3000)) for name in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)]


def violations(seeds: range, ops: int = 60) -> Iterator[tuple[int, Violation]]:
    """Return the seeds that cause a violation, with its text."""
    for seed in seeds:
        try:
            World(seed).run(random_ops(random.Random(seed), ops))
        except Violation as violation:
            yield seed, violation
