"""A session of AMQP 0-10 that works for branches. It checks each answer when it arrives."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp010.connection import Connection
from tests.harness.server import AnyPort, SimServer
from tests.simulation.amqp010 import wire
from tests.simulation.amqp010.wire import Operation
from tests.simulation.branch_calls import Worker
from tests.simulation.ledger import Ledger, Violation

_LOGIN: Final = b"\0guest\0guest"
_CHANNEL: Final = 1
_PLENTY: Final = 0xFFFFFFFF
FRAME_MAX: Final = 4096

STATUSES: Final = ("OK", "RB_ROLLBACK", "RB_TIMEOUT", "HEUR_HAZ", "HEUR_COM", "HEUR_RB", "HEUR_MIX", "RDONLY")
"""The statuses of the specification, by number, in the words of the model."""
CODES: Final = {"NOT_FOUND": 404, "ILLEGAL_STATE": 409, "COMMAND_INVALID": 503, "NOT_ALLOWED": 530}
"""The error code for each condition of the model."""
INTERNAL_ERROR: Final = 541


@dataclass(eq=False)
class Expected:
    """The answer that a command must get: a status, the name of a condition, nothing, or the xids in doubt. It must not
    be sent before the log is synced up to `after`.
    """

    what: str
    answer: str | set[Xid]
    after: int
    result: bytes | None = None


class Delivery(NamedTuple):
    """A message that the session holds: the number of its transfer, its queue and its serial number."""

    number: int
    queue: str
    serial: int
    redelivered: bool


class SessionWorker(Worker):
    """A connection with one session, which is attached again after each refusal. While it is not `ready`, the session
    is being attached or detached.
    """

    def __init__(self, number: int, ledger: Ledger) -> None:
        super().__init__()
        self.number = number
        self.ready = False
        self.fault = 0
        """The code with which the broker has ended the session, at once, before the client can know it."""
        self.associated: Xid | None = None
        """The branch for which the session works, even if the broker has forgotten it meanwhile."""
        self.held: list[Delivery] = []
        self.arrived: list[Delivery] = []
        self.pending: dict[int, Expected] = {}
        self._ledger = ledger
        self._lives = 0
        self._up = deque[bytes]()
        self._server: SimServer
        self._port: AnyPort

    @property
    def able(self) -> bool:
        """Whether the session is attached, and can send commands."""
        return self.ready and not self.fault

    @property
    def working(self) -> Any:
        """The branch for which the session works, as the broker has it."""
        session = self._port.endpoint.sessions.get(_CHANNEL)
        return None if session is None else session.branch

    # -- connections and sessions

    def connect(self, server: SimServer) -> None:
        """Log in and attach a session."""
        self._server = server
        self._port = server.open(Connection, f"worker {self.number}")
        self._parser = wire.Parser()
        self._up.clear()
        start_ok = {"properties": {}, "mechanism": "PLAIN", "response": _LOGIN, "locale": "en_US"}
        data = wire.PROTOCOL_HEADER + wire.operation(0, "connection.start-ok", **start_ok)
        data += wire.operation(0, "connection.tune-ok", channel_max=100, frame_max=FRAME_MAX)
        self._up.append(data + wire.operation(0, "connection.open", vhost="/"))
        self._attach()
        self.flush()

    def _attach(self) -> None:
        self._lives += 1
        self._name = b"%d.%d" % (self.number, self._lives)
        self._next = self._received = 0
        self.ready, self.fault, self.associated = False, 0, None
        self.held.clear()
        self.arrived.clear()
        self.pending.clear()
        self._subscribed: set[str] = set()
        data = wire.operation(_CHANNEL, "session.attach", name=self._name)
        data += wire.operation(_CHANNEL, "session.command-point", id=0, offset=0)
        self._up.append(data)
        self.send("dtx.select")

    def owns(self, port: AnyPort) -> bool:
        return self._port is port

    def serves(self, endpoint: object) -> bool:
        return self._port.endpoint is endpoint

    def lose(self) -> None:
        """Lose the connection, and connect again."""
        self._server.lose(self._port)
        self.connect(self._server)

    def detach(self) -> None:
        """Detach the session in an orderly way. Nothing is sent until it is attached again."""
        self.ready = False
        self._up.append(wire.operation(_CHANNEL, "session.detach", name=self._name))
        self.flush()

    def flush(self) -> None:
        """Let the server receive what was sent."""
        while self._up:
            self._server.receive(self._port, self._up.popleft())

    # -- commands

    def send(self, name: str, **values: Any) -> int:
        """Send a command; return its number."""
        self._up.append(wire.operation(_CHANNEL, name, **values))
        self._next += 1
        return self._next - 1

    def publish(self, exchange: str, key: str, body: bytes, *, durable: bool) -> None:
        """Publish a message in the branch."""
        delivery = {"mode": 2 if durable else 1, "key": key, "priority": 4}
        self._up.append(wire.transfer(_CHANNEL, exchange, delivery, body, FRAME_MAX))
        self._next += 1

    def fetch(self, queue: str) -> Delivery | None:
        """Return the next message of a queue, which the session holds then."""
        if queue not in self._subscribed:
            self._subscribed.add(queue)
            self.send("message.subscribe", queue=queue, destination=queue, accept_mode=0, acquire_mode=0)
            self.send("message.set-flow-mode", destination=queue, mode=0)
        self.send("message.flow", destination=queue, unit=1, value=_PLENTY)
        self.send("message.flow", destination=queue, unit=0, value=1)
        self.send("message.flush", destination=queue)
        self.flush()
        self._server.end_turn()
        self.send("message.stop", destination=queue)
        self.flush()
        self._server.end_turn()
        if len(self.arrived) > 1:
            raise Violation(f"{len(self.arrived)} messages for a credit of one: {self.arrived}")
        if not self.arrived:
            return None
        found = self.arrived.pop()
        self.held.append(found)
        return found

    # -- from the server

    def read(self, data: bytes, synced: int) -> None:
        """Process bytes that the server sends while the log is synced up to `synced`. Raises Violation."""
        for each in self._parser.feed(data):
            if each.channel == _CHANNEL:
                self._read(each, synced)

    def _read(self, each: Operation, synced: int) -> None:
        if not each.is_control:
            number = self._received
            self._received += 1
            if each.name == "message.transfer":
                redelivered = bool(each.header.get("redelivered"))
                queue = each.values["destination"]
                self.arrived.append(Delivery(number, queue, int(each.body), redelivered))
            elif each.name == "execution.result":
                self._expected(each.values["id"]).result = each.values["value"]
            else:
                found = self.pending.pop(each.values["id"], Expected("?", "?", 0))
                self._check(found, f"{each.values['code']}", synced)
        elif each.name == "session.attached":
            self.ready = True
        elif each.name == "session.completed":
            for first, last in each.values.get("commands", ()):
                for number in [number for number in self.pending if first <= number <= last]:
                    expected = self.pending.pop(number)
                    self._check(expected, _said(expected), synced)
        elif each.name == "session.detach":
            self._up.append(wire.operation(_CHANNEL, "session.detached", name=self._name, code=0))
            self._attach()
        elif each.name == "session.detached":
            self._attach()

    def _expected(self, number: int) -> Expected:
        found = self.pending.get(number)
        if found is None or found.result is not None:
            raise Violation(f"a result for the command {number}, which has none, or has had it")
        return found

    def _check(self, expected: Expected, said: str | set[Xid], synced: int) -> None:
        answer = expected.answer
        if isinstance(answer, str):
            answer = str(CODES.get(answer, answer))
        if said != answer:
            raise Violation(f"{expected.what} was answered with {said}; expected: {answer}")
        if synced < expected.after:
            raise Violation(f"{expected.what} was answered before it was on disk")
        if isinstance(expected.answer, str):
            self._ledger.count(f"{expected.what}: {expected.answer}")
        else:
            self._ledger.count("recover")


def _said(expected: Expected) -> str | set[Xid]:
    if expected.result is None:
        return ""
    if isinstance(expected.answer, str):
        return STATUSES[wire.xa_status(expected.result)]
    return {Xid(*found) for found in wire.recovered(expected.result)}
