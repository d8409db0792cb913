"""Stalls by single requests that concern very many messages or branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import pack

from bench.brokers import Broker
from bench.scenario import BACKLOG, Settings
from bench.stalls import Stalls, channel_of, lose, take
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, properties, publish_head
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.peer import RECEIVE_SIZE

MESSAGES = 300_000
BRANCHES = 9000
_TTL = 3_600_000
_NAMES = [f"bench-{number}" for number in range(10)]
DECIDED = _NAMES[0]
"""The queue of the branches of `decision`."""
_DEAD = "bench-dead"
_PREPARE, _PREPARE_OK = frames.method_id(105, 40), frames.method_id(105, 41)
_COMMIT, _COMMIT_OK = frames.method_id(105, 10), frames.method_id(105, 11)
_ROLLBACK, _ROLLBACK_OK = frames.method_id(105, 60), frames.method_id(105, 61)
_DECIDE, DECIDE_OK = frames.method_id(240, 60), frames.method_id(240, 61)
_RECOVER, _RECOVER_OK = frames.method_id(60, 110), frames.method_id(60, 111)
_FLOW, _FLOW_OK = frames.method_id(20, 20), frames.method_id(20, 21)
_SET_TIMEOUT, _SET_TIMEOUT_OK = frames.method_id(105, 70), frames.method_id(105, 71)
_TX_ROLLBACK, _TX_ROLLBACK_OK = frames.method_id(90, 30), frames.method_id(90, 31)
_NACK = frames.method_id(60, 120)
_REQUEUE = 0b11  # multiple and requeue
_REJECT = 0b01


def _after(connection: Connection, request: bytes) -> None:
    """Send a request, and wait until the broker has handled it."""
    connection.call(1, request + frames.basic_qos(1, 0), frames.BASIC_QOS_OK)


def _declare(connection: Connection, dead: str = "") -> None:
    arguments: dict[str, frames.TableValue] = (
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead} if dead else {}
    )
    declares = [frames.queue_declare(1, name, durable=True) for name in (*_NAMES, _DEAD)]
    declares.append(frames.queue_declare(1, BACKLOG, durable=True, arguments=arguments))
    connection.calls(1, declares, frames.QUEUE_DECLARE_OK)


def _publish(connection: Connection, count: int, queues: list[str]) -> None:
    """Publish messages to `queues` in turn. No two are alike to the broker, because each has its own time to live."""
    for first in range(0, count, 1000):
        found = []
        for number in range(first, min(first + 1000, count)):
            props = pack(">HB", 0x1100, 2) + frames.shortstr(str(_TTL + number))
            head = publish_head(1, "", queues[number % len(queues)], 8, props)
            found.append(head + body_frames(1, pack(">Q", number), 0))
        _after(connection, b"".join(found))


def _held(connection: Connection, count: int, dead: str = "") -> None:
    """Get `count` messages delivered, from a queue with or without dead-lettering."""
    _declare(connection, dead)
    _publish(connection, count, [BACKLOG])
    take(connection, count)


class LargeBranches(Stalls):
    """An XA branch with 300,000 operations is prepared and decided, or lost; 9,000 branches are decided at once."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-branches",
            {
                "prepare": "an XA branch that publishes 300,000 different messages is prepared",
                "commit": "it commits",
                "prepare-settled": "an XA branch that settles 300,000 is prepared",
                "rollback": "it is rolled back",
                "abandon": "the connection of such a branch is lost before it is prepared",
                "decide": "9,000 branches are decided at once",
            },
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        count = max(int(MESSAGES * settings.scale), 10)
        with channel_of(broker) as connection:
            _declare(connection)
            connection.call(1, frames.dtx_select(1), frames.DTX_SELECT_OK)
            branch = _started(connection, b"published")
            _publish(connection, count, _NAMES)
            _ended(connection, branch)
            self._asked(broker, "prepare", connection, _PREPARE, frames.longstr(branch), _PREPARE_OK)
            self._asked(broker, "commit", connection, _COMMIT, frames.longstr(branch) + b"\0", _COMMIT_OK)
        with channel_of(broker) as connection:
            _held(connection, count)
            connection.call(1, frames.dtx_select(1), frames.DTX_SELECT_OK)
            branch = _started(connection, b"settled")
            _after(connection, frames.basic_ack(1, 0, multiple=True))
            _ended(connection, branch)
            self._asked(broker, "prepare-settled", connection, _PREPARE, frames.longstr(branch), _PREPARE_OK)
            self._asked(broker, "rollback", connection, _ROLLBACK, frames.longstr(branch), _ROLLBACK_OK)
        with channel_of(broker) as connection:
            take(connection, count)
            connection.call(1, frames.dtx_select(1), frames.DTX_SELECT_OK)
            _started(connection, b"lost")
            _after(connection, frames.basic_ack(1, 0, multiple=True))
            self._watched(broker, "abandon", partial(lose, broker, connection, count))
        self._decide(broker, max(int(BRANCHES * settings.scale), 5))

    def _decide(self, broker: Broker, count: int) -> None:
        with channel_of(broker) as connection:
            request = decision(connection, count)
            self._watched(broker, "decide", lambda: connection.call(1, request, DECIDE_OK))

    def _asked(
        self, broker: Broker, short: str, connection: Connection, method: int, arguments: bytes, answer: int
    ) -> None:
        request = frames.method(1, method, b"\0\0" + arguments)
        self._watched(broker, short, lambda: connection.call(1, request, answer))


def decision(connection: Connection, count: int) -> bytes:
    """Prepare branches that publish one message each, and return the request that decides all of them. Its answer is
    `DECIDE_OK`.
    """
    connection.call(1, frames.dtx_select(1), frames.DTX_SELECT_OK)
    names = [b"%d" % number for number in range(count)]
    for name in names:
        branch = _started(connection, b"decided", name)
        props = properties(LoadMessage(b""), delivery_mode=2)
        connection.socket.sendall(publish_head(1, "", DECIDED, len(name), props) + body_frames(1, name, 0))
        _ended(connection, branch)
        connection.call(1, frames.method(1, _PREPARE, b"\0\0" + frames.longstr(branch)), _PREPARE_OK)
    winners = frames.shortstr("bqual") + _array(names)
    arguments = pack(">I", 1) + frames.longstr(b"decided") + frames.longstr(winners) + frames.shortstr("bench")
    return frames.method(1, _DECIDE, arguments + pack(">Q", 1))


def _started(connection: Connection, gtrid: bytes, bqual: bytes = b"b") -> bytes:
    branch = _xid(gtrid, bqual)
    arguments = b"\0\0" + frames.longstr(branch) + b"\0"
    connection.call(1, frames.method(1, frames.DTX_START, arguments), frames.DTX_START_OK)
    timeout = b"\0\0" + frames.longstr(branch) + pack(">I", 0)
    connection.call(1, frames.method(1, _SET_TIMEOUT, timeout), _SET_TIMEOUT_OK)
    return branch


def _ended(connection: Connection, branch: bytes) -> None:
    arguments = b"\0\0" + frames.longstr(branch) + b"\0"
    connection.call(1, frames.method(1, frames.DTX_END, arguments), frames.DTX_END_OK)


def _xid(gtrid: bytes, bqual: bytes) -> bytes:
    return pack(">IBB", 1, len(gtrid), len(bqual)) + gtrid + bqual


def _array(names: list[bytes]) -> bytes:
    return b"A" + frames.longstr(b"".join(b"S" + frames.longstr(name) for name in names))


class LargeSettlements(Stalls):
    """300,000 deliveries are settled by one method, outside and inside a transaction."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-settling",
            {
                "requeue": "300,000 deliveries are requeued by basic.nack",
                "recover": "300,000 deliveries are requeued by basic.recover",
                "again": "300,000 deliveries are sent again by basic.recover",
                "ack": "300,000 deliveries are acknowledged at once",
                "dead": "300,000 deliveries are rejected into another queue",
                "tx-ack": "300,000 deliveries are acknowledged in a transaction",
                "tx-commit": "the transaction commits",
                "tx-dead": "300,000 deliveries are rejected in a transaction",
                "tx-dead-commit": "the transaction commits",
                "tx-requeue": "300,000 deliveries are requeued in a transaction",
                "tx-rollback": "the transaction is rolled back",
                "tx-lost": "a connection is lost that has settled 300,000 deliveries in a transaction",
            },
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        count = max(int(MESSAGES * settings.scale), 10)
        self._many(broker, count, {"requeue": lambda connection: _after(connection, _nack(_REQUEUE))})
        self._many(broker, count, {"recover": lambda connection: _after(connection, _recover(requeue=True))})
        self._many(broker, count, {"again": _again}, flow=True)
        self._many(broker, count, {"ack": lambda connection: _after(connection, frames.basic_ack(1, 0, True))})
        self._many(broker, count, {"dead": lambda connection: _after(connection, _nack(_REJECT))}, dead=_DEAD)
        self._many(
            broker,
            count,
            {
                "tx-ack": lambda connection: _after(connection, frames.basic_ack(1, 0, True)),
                "tx-commit": _commit,
            },
            before=_select,
        )
        self._many(
            broker,
            count,
            {"tx-dead": lambda connection: _after(connection, _nack(_REJECT)), "tx-dead-commit": _commit},
            dead=_DEAD,
            before=_select,
        )
        self._many(
            broker,
            count,
            {
                "tx-requeue": lambda connection: _after(connection, _nack(_REQUEUE)),
                "tx-rollback": lambda connection: connection.call(1, frames.method(1, _TX_ROLLBACK), _TX_ROLLBACK_OK),
            },
            before=_select,
        )
        with channel_of(broker) as connection:
            _reset(connection)
            _held(connection, count)
            _select(connection)
            _after(connection, frames.basic_ack(1, 0, multiple=True))
            self._watched(broker, "tx-lost", partial(lose, broker, connection, count))

    def _many(
        self,
        broker: Broker,
        count: int,
        requests: dict[str, Callable[[Connection], object]],
        dead: str = "",
        before: Callable[[Connection], object] | None = None,
        flow: bool = False,
    ) -> None:
        with channel_of(broker) as connection:
            _reset(connection)
            _held(connection, count, dead)
            if before is not None:
                before(connection)
            if not flow:
                connection.call(1, frames.method(1, _FLOW, b"\0"), _FLOW_OK)
            for short, request in requests.items():
                self._watched(broker, short, partial(request, connection))


def _reset(connection: Connection) -> None:
    deletes = [frames.queue_delete(1, name) for name in (BACKLOG, _DEAD)]
    connection.calls(1, deletes, frames.QUEUE_DELETE_OK)


def _nack(bits: int) -> bytes:
    return frames.method(1, _NACK, pack(">QB", 0, bits))


def _recover(*, requeue: bool) -> bytes:
    return frames.method(1, _RECOVER, bytes((requeue,)))


def _again(connection: Connection) -> None:
    """Have all deliveries sent again, and read up to the answer, which follows them."""
    answer = frames.method(1, _RECOVER_OK)
    connection.socket.sendall(_recover(requeue=False))
    tail = b""
    while not tail.endswith(answer):
        tail = (tail + connection.socket.recv(RECEIVE_SIZE))[-len(answer) :]


def _select(connection: Connection) -> None:
    connection.call(1, frames.tx_select(1), frames.TX_SELECT_OK)


def _commit(connection: Connection) -> None:
    connection.call(1, frames.tx_commit(1), frames.TX_COMMIT_OK)


LARGE_REQUESTS: tuple[Stalls, ...] = (LargeBranches(), LargeSettlements())
