"""The whole server core in one process without sockets, threads or a clock: every step of it is a call.

The real server has an event loop, a writer's thread and an executor. Here the caller does their work step by step:
bytes arrive (`receive`), a turn ends (`end_turn`), the writer takes a batch, writes it and reports it. Snapshots,
compaction and the deletion of files have separate steps too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.transactions import LARGE
from escrowmq.core.broker import Broker
from escrowmq.core.engine import RESIDENT_LIMIT, Engine
from escrowmq.core.queues.returning import PIECE
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.recovery.relocation import Relocation
from escrowmq.core.recovery.replay import Recovery
from escrowmq.core.recovery.snapshot import Capture, snapshot
from escrowmq.journal.batch import Batch
from escrowmq.journal.journal import SEGMENT_BYTES, Journal, SparseSegment
from escrowmq.journal.snapshot import Snapshot
from escrowmq.journal.storage import Storage
from escrowmq.journal.writer import JournalSink
from escrowmq.wire.admission import ADMISSIONS
from escrowmq.wire.endpoint import Endpoint, EndpointLimits, Host, Peer, Verdict
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.sasl import Credentials
from escrowmq.wire.scram.keys import LEAST_ITERATIONS, derive
from escrowmq.wire.scram.server import Challenge
from tests.harness.captures import plain
from tests.harness.noted import NotedChanges


@dataclass(frozen=True)
class Options:
    """Sizes in bytes. Small ones cause many segments and much paging."""

    segment_bytes: int = SEGMENT_BYTES
    batch_bytes: int = 16 << 20
    resident_limit: int = RESIDENT_LIMIT
    limits: EndpointLimits = field(default_factory=EndpointLimits)
    users: tuple[str, ...] = ("guest",)
    keep_dead_bytes: int = 0
    deliveries: bool = False
    return_piece: int = PIECE
    """Deliveries of a lost connection that return to their queues in one turn."""
    large_branch: int = LARGE
    """Operations above which a transaction is committed in pieces."""
    capture_piece: int = 1
    """Queues in the first piece of a snapshot's capture."""
    noted: bool = True
    """Whether each turn is checked for changes of queues that were not noted."""


E = TypeVar("E", bound=Endpoint)
T = TypeVar("T")


@dataclass(eq=False)
class Port(Generic[E]):
    """The server's side of a connection. `sent` contains the output that has not been taken yet."""

    endpoint: E
    name: str
    sent: bytearray = field(default_factory=bytearray)
    closed: bool = False


AnyPort: TypeAlias = Port[Any]


def with_transaction_limits(**limits: int) -> EndpointLimits:
    """The default limits with bounds on transactions (TX-13)."""
    return EndpointLimits(transaction=Limits(**limits))


class SimServer:
    """One life of the server process, beginning with recovery. Raises the journal's errors."""

    mechanisms: tuple[str, ...] = ("PLAIN",)

    def __init__(
        self,
        storage: Storage,
        options: Options | None = None,
        *,
        now: int = 1_000_000,
        seed: int = 0,
        make_broker: Callable[..., Broker] = Broker,
        resume: Callable[[Engine, int], None] | None = None,
        sink: JournalSink | None = None,
    ) -> None:
        """`resume` may set the broker's time. It gets the time of the last record in milliseconds, or 0."""
        self.options = options or Options()
        self.limits: EndpointLimits = self.options.limits
        self.on_output: Callable[[AnyPort, bytes], None] | None = None
        self.on_fault: Callable[[Endpoint, int | str], None] | None = None
        self.ports: dict[Endpoint, AnyPort] = {}
        self.now = now
        self.batch: Batch | None = None
        self.written = False
        self.capture: Capture | None = None
        self.snapshot: Snapshot | None = None
        self.files: Callable[[], None] | None = None
        self._installing = False
        self._stirred: dict[Endpoint, None] = {}
        self._unfinished: dict[Endpoint, None] = {}
        self._holding: dict[Endpoint, None] = {}
        self._sparse: list[SparseSegment] = []
        self._relocation: Relocation | None = None
        self._relocated_to = 0
        self._in_vain: set[int] = set()
        self._common: dict[type, Any] = {}
        self.journal = Journal.open(
            storage,
            segment_bytes=self.options.segment_bytes,
            batch_bytes=self.options.batch_bytes,
            journal_id=b"simulated-server",
            keep_dead_bytes=self.options.keep_dead_bytes,
            sink=sink,
        )
        self.broker = make_broker(self.journal, random.Random(seed), resident_limit=self.options.resident_limit)
        self.broker.formats.update(FORMATS)
        self.broker.admissions.update(ADMISSIONS)
        self.broker.engine.now = now
        self.broker.engine.returns.piece = self.options.return_piece
        self.broker.transactions.large = self.options.large_branch
        recovery = Recovery(self.broker)
        self.last_ms = 0
        for lsn, kind, payload, time_us in self.journal.replay():
            recovery.apply(lsn, kind, payload)
            self.last_ms = time_us // 1000
        if resume is not None:
            resume(self.broker.engine, self.last_ms)
            self.now = self.broker.engine.now
        recovery.finish()
        self.broker.directory.end_restore()
        if self.options.deliveries:
            self.broker.engine.record_deliveries()
        self._noted = NotedChanges(self.broker) if self.options.noted else None
        if not self.broker.directory.vhosts:
            self._prepare()

    def _prepare(self) -> None:
        broker = self.broker
        broker.directory.add_vhost("/")
        for user in self.options.users:
            broker.directory.record_access(broker.access.add_user(user, "hash"))
            broker.directory.record_access(broker.access.set_permission(user, "/", ".*", ".*", ".*"))
        self.end_turn()
        self.run_disk()

    # -- called by endpoints (wire.endpoint.Host)

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        known = credentials.authcid in self.broker.access.users
        done(Verdict(credentials.authcid) if known else Verdict(None, "no such user"))

    def challenge(self, mechanism: str, user: str) -> Challenge:
        return Challenge(derive(mechanism, user, b"salt", LEAST_ITERATIONS), "nonce")

    def secret_key(self, access_key: str) -> bytes:
        return b"secret of " + access_key.encode()

    def check_room(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """Return nothing: there is always room here."""

    def login_judged(self, endpoint: Endpoint, who: str, verdict: Verdict) -> None:
        """Do nothing: there is no log here."""

    def admitted(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """Do nothing: no list of connections is kept here."""

    def stir(self, endpoint: Endpoint) -> None:
        self._stirred[endpoint] = None

    def await_sync(self, endpoint: Endpoint, *, urgent: bool = True) -> None:
        self._holding[endpoint] = None

    def publishing(self, endpoint: Endpoint) -> None:
        """Do nothing: no resource is short here."""

    def waiting(self, endpoint: Endpoint) -> None:
        """Do nothing: no connection is blocked here."""

    def carry_on(self, endpoint: Endpoint) -> None:
        self._unfinished[endpoint] = None

    def failed(self, endpoint: Endpoint, code: int | str, text: str) -> None:
        """Tell `on_fault`. There is no log here."""
        if self.on_fault is not None:
            self.on_fault(endpoint, code)

    def common(self, kind: type[T]) -> T:
        found = self._common.get(kind)
        if found is None:
            found = self._common[kind] = kind()
        return found

    def password_changed(self, endpoint: Endpoint, secret: bytes) -> None:
        """Do nothing: there are no passwords here."""

    def renew(self, endpoint: Endpoint, token: str, done: Callable[[Verdict], None]) -> None:
        """Refuse the token: nobody logs in by one here."""
        done(Verdict(None, "no tokens"))

    # -- connections

    def open(self, opener: Callable[[Host, Peer], E], name: str = "client") -> Port[E]:
        """Connect a client. `opener` makes the endpoint of its protocol, as in `wire.sniff`."""
        port = Port(opener(self, Peer(name, len(self.ports) + 1, loopback=True)), name)
        self.ports[port.endpoint] = port
        return port

    def receive(self, port: AnyPort, data: bytes) -> None:
        """Receive bytes in the turn that the next `end_turn` ends."""
        if not port.closed:
            self.broker.engine.now = self.now
            port.endpoint.receive(data)

    def lose(self, port: AnyPort) -> None:
        """Remove a connection that either side has ended."""
        if not port.closed:
            self.broker.engine.now = self.now
            port.endpoint.lost()
            self._close(port)

    def _close(self, port: AnyPort) -> None:
        port.closed = True
        self.ports.pop(port.endpoint, None)
        self._stirred.pop(port.endpoint, None)
        self._unfinished.pop(port.endpoint, None)
        self._holding.pop(port.endpoint, None)

    # -- turns

    def end_turn(self) -> None:
        """Run due deadlines, make deliveries, and collect the output of all connections. Requests that take more than
        one turn are carried out to their end.
        """
        self._work()
        while self._unfinished or self._overdue:
            self._go_on()
            self._work()
        self._flush_all()

    def end_one_turn(self) -> None:
        """Do `end_turn` for one turn. Requests that are not finished then go on in the next one, as in the server."""
        self._go_on()
        self._work()
        self._flush_all()

    @property
    def unfinished(self) -> bool:
        """Whether a request has taken a turn and is not finished."""
        return bool(self._unfinished)

    def _go_on(self) -> None:
        unfinished, self._unfinished = self._unfinished, {}
        for endpoint in unfinished:
            endpoint.receive(b"")

    def _work(self) -> None:
        broker = self.broker
        broker.engine.now = self.now
        if self._overdue:
            broker.engine.run_deadlines()
        broker.engine.turn.end()

    @property
    def _overdue(self) -> bool:
        """Whether deadlines are due. A turn runs as many as its work allows."""
        due = self.broker.engine.next_deadline()
        return due is not None and due <= self.now

    def _flush_all(self) -> None:
        while self._stirred:
            dirty, self._stirred = self._stirred, {}
            for endpoint in dirty:
                port = self.ports.get(endpoint)
                if port is not None:
                    self._flush(port)
        if self._noted is not None:
            self._noted.check()

    def _flush(self, port: AnyPort) -> None:
        data = b"".join(port.endpoint.output())
        if data:
            port.sent += data
            if self.on_output is not None:
                self.on_output(port, data)
        if port.endpoint.finished:
            port.endpoint.lost()
            self._close(port)

    @property
    def idle(self) -> bool:
        """Whether the server can only wait for clients and for time to pass."""
        return (
            self.batch is None
            and self.journal.end_lsn == self.journal.synced_lsn
            and not self._stirred
            and not self._unfinished
            and not self.broker.engine.turn.unfinished
        )

    # -- the disk

    def take_batch(self) -> bool:
        """Pass the pending batch to the writer, if the writer is idle and there is a batch."""
        if self.batch is None:
            self.batch = self.journal.take_batch(self.now * 1000)
            self.written = False
            return self.batch is not None
        return False

    def write_batch(self) -> bool:
        """Let the writer write and sync its batch. Raises JournalFailed."""
        if self.batch is not None and not self.written:
            self.batch.write()
            self.written = True
            return True
        return False

    def report_batch(self) -> bool:
        """Report the written batch to the loop, which sends the answers in the turn that this begins."""
        if self.batch is None or not self.written:
            return False
        batch, self.batch = self.batch, None
        self.broker.engine.now = self.now
        self.journal.batch_done(batch)
        lsn = self.journal.synced_lsn
        self.broker.engine.synced(lsn)
        holding, self._holding = self._holding, {}
        for endpoint in holding:
            if endpoint.synced(lsn):
                self._holding[endpoint] = None
        return True

    def run_disk(self) -> None:
        """Write until everything is on disk and all waiting answers are sent."""
        while True:
            self.take_batch()
            self.write_batch()
            if not self.report_batch():
                return
            self.end_turn()

    # -- maintenance, between turns

    def begin_snapshot(self) -> bool:
        """Capture a piece of the state, unless another snapshot is in progress or compaction moves messages.

        The snapshot begins with the last piece. It must equal one that is captured in one piece.
        """
        if self.snapshot is not None or self._relocation is not None:
            return False
        if self.capture is None:
            self.capture = Capture(self.broker, self.options.capture_piece)
        if not self.capture.step():
            return True
        found = list(self.capture.records())
        self.capture = None
        assert plain(found) == plain(snapshot(self.broker)), "a queue has changed since it was captured"
        records = [(kind, b"".join(parts)) for kind, parts in found]
        self.snapshot = self.journal.begin_snapshot(records, self.now * 1000)
        return True

    def write_snapshot(self) -> bool:
        """Raises SnapshotFailed."""
        snapshot = self.snapshot
        if snapshot is None or snapshot.written:
            return False
        try:
            snapshot.write()
        finally:
            self.journal.snapshot_done(snapshot)
            if not snapshot.written:
                self.snapshot = None
        return True

    def housekeep(self) -> bool:
        """Ask the journal for file work, unless there is some already."""
        if self.files is not None:
            return False
        if self._installing:  # the journal learns the result in the call below
            self._installing = False
            self.snapshot = None
        snapshot = self.snapshot
        ready = snapshot is not None and snapshot.written and snapshot.lsn <= self.journal.synced_lsn
        waiting = self.journal.removal_lsn
        self.files = self.journal.housekeeping()
        self._installing = ready and self.files is not None
        return self.files is not None or self.journal.removal_lsn != waiting

    def run_files(self) -> bool:
        """Rename and delete files. Raises OSError."""
        if self.files is None:
            return False
        work, self.files = self.files, None
        work()
        return True

    def relocate(self, ratio: float = 1.0) -> bool:
        """Do one step of a compaction, begun if a segment is sparse. A step waits until the previous one is on disk."""
        if self._relocation is None:
            if self.snapshot is not None or self.capture is not None:
                return False
            self._sparse = self._sparse or [
                segment for segment in self.journal.sparse_segments(ratio) if segment.first_lsn not in self._in_vain
            ]
            if not self._sparse:
                return False
            segment = self._sparse.pop()
            self._relocation = Relocation(self.broker, segment.first_lsn, segment.end_lsn)
        if self.journal.synced_lsn < self._relocated_to:
            return False
        try:
            unfinished = self._relocation.step()
        except LogUnreadable:
            unfinished = False
        if not unfinished:
            if not self._relocation.moved:  # living content that cannot move, such as a branch in doubt
                self._in_vain.add(self._relocation.first_lsn)
            self._relocation = None
        self._relocated_to = self.journal.end_lsn
        return True

    def tidy(self) -> None:
        """Do a whole snapshot, compaction and deletion, one after the other."""
        self.run_disk()
        while self.relocate():
            self.run_disk()
        for _ in range(2):  # the first one may have been begun before
            self.begin_snapshot()
            while self.capture is not None:
                self.begin_snapshot()
            self.write_snapshot()
            self._tidy_files()
        while self.relocate():
            self.run_disk()
        self._tidy_files()

    def _tidy_files(self) -> None:
        self.run_disk()
        self.run_files()
        while self.housekeep():
            self.run_disk()
            self.run_files()

    def close(self) -> None:
        """Stop the process cleanly."""
        for port in list(self.ports.values()):
            self.lose(port)
        self.end_turn()
        self.run_disk()
        self.journal.close()
