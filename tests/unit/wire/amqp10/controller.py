"""A client that controls transactions, for the tests beside this file."""

from __future__ import annotations

from typing import Any

from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    Attach,
    Disposition,
    Transfer,
)
from escrowmq.wire.amqp10.codec.sections import VALUE
from escrowmq.wire.amqp10.codec.states import (
    OUTCOME_SYMBOLS,
    Accepted,
    Declared,
    Outcome,
    Rejected,
    TransactionalState,
)
from escrowmq.wire.amqp10.codec.termini import Coordinator, Declare, Discharge, Source
from tests.unit.wire.amqp10.clients import Client, body, connected

CONTROL = 9
Q = "q"


class Controller:
    """A client with a control link, on handle 9 of session 0. Commands have delivery numbers from 1,000 on.

    Unless `client` is given, it also has a link on which it sends, on handle 0.
    """

    def __init__(self, *, rejects: bool = True, client: Client | None = None, **limits: Any) -> None:
        self.server, self.client = connected(**limits) if client is None else (client.server, client)
        self.number = 1000
        self.attach(rejects=rejects)
        if client is None:
            self.client.sender(Q)

    def attach(self, handle: int = CONTROL, *, rejects: bool = True) -> Attach:
        outcomes = OUTCOME_SYMBOLS if rejects else ()
        return self.client.sender(None, handle, target=Coordinator(), source=Source(outcomes=outcomes))

    def command(self, value: Any, handle: int = CONTROL, **fields: Any) -> int:
        """Send a command; return its delivery number."""
        self.number += 1
        payload = b"\x00\x53" + bytes((VALUE,)) + (value if isinstance(value, bytes) else encode_composite(value))
        transfer = Transfer(handle, self.number, b"%d" % self.number, 0, **({"settled": False} | fields))
        self.client.send(0, transfer, payload=payload)
        return self.number

    def outcome(self, value: Any, handle: int = CONTROL) -> Any:
        """Send a command; return the state with which it is settled."""
        number = self.command(value, handle)
        answer = self.client.outcome(number)
        assert answer.settled
        return answer.state

    def declare(self, handle: int = CONTROL) -> bytes:
        state = self.outcome(Declare(), handle)
        assert isinstance(state, Declared)
        return state.txn_id

    def commit(self, ident: bytes) -> None:
        assert self.outcome(Discharge(ident, False)) == Accepted()

    def rollback(self, ident: bytes) -> None:
        assert self.outcome(Discharge(ident, True)) == Accepted()

    def refuses(self, ident: bytes, condition: str) -> str:
        state = self.outcome(Discharge(ident, False))
        assert isinstance(state, Rejected)
        assert state.error is not None
        assert state.error.condition == condition
        return state.error.description or ""

    def post(self, ident: bytes, number: int, content: bytes = b"x", outcome: Any = None, **fields: Any) -> None:
        """Post a message in a transaction; expect this provisional outcome."""
        self.client.post(number, content, state=TransactionalState(ident), **fields)
        if not fields.get("settled"):
            answer = self.client.outcome(number)
            assert answer.state == TransactionalState(ident, outcome or Accepted())

    def retire(self, ident: bytes, first: int, last: int, outcome: Outcome | None, *, settled: bool = True) -> None:
        state = TransactionalState(ident, outcome)
        self.client.send(0, Disposition(role=RECEIVER, first=first, last=last, settled=settled, state=state))

    def contents(self, name: str = Q) -> list[bytes]:
        """Return the ready messages of a queue."""
        queue = self.server.broker.directory.vhost("/").queue(name)
        queue.refresh()
        entries = []
        while found := queue.order.take(1000):
            entries += found
        queue.order.put_back(entries)
        return [body(entry.content) for entry in entries]

    def unsettled(self) -> int:
        return self.server.broker.directory.vhost("/").queue(Q).unsettled


def consuming(site: Controller, count: int, **source: Any) -> None:
    """Let the client receive the deliveries from 0 to `count` - 1 on handle 1."""
    for number in range(count):
        site.client.post(number, b"%d" % number, settled=True)
    site.client.receiver(Q, credit=count, source=Source(Q, **source))
    assert [number for number, _ in site.client.deliveries()] == list(range(count))
