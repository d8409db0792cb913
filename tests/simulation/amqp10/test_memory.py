"""Clients use a connection in every way and abort it. No memory may be left, without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from escrowmq.wire.amqp10.codec import hot
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.frames import SASL_HEADER
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SECOND,
    SENDER,
    Attach,
    Detach,
    Disposition,
    End,
    Transfer,
)
from escrowmq.wire.amqp10.codec.sections import VALUE
from escrowmq.wire.amqp10.codec.states import Accepted, Declared, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Coordinator, Declare, Discharge, Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from tests.harness.memory import assert_nothing_is_left
from tests.unit.wire.amqp10.clients import Client, connected, message

ABORTED = 100
KEPT = 50  # objects that may remain of all connections together, such as caches of a fixed size
_CONTROL = 9
_SUSPENDED = Source("q", expiry_policy=Symbol("connection-close"))
LEFT_BYTES = 1 << 20
"""Memory that may remain of all connections together."""


def _filled(client: Client) -> None:
    """It has posted on link 0."""
    client.sender("q")
    for number in range(6):
        client.post(number)
    client.inbox.clear()


def _idle(client: Client) -> None:
    """It has begun a session, and ended another one."""
    client.begin(1)
    client.sender("q", channel=1)
    client.send(1, End())


def _posting(client: Client) -> None:
    client.sender("q")
    for number in range(3):
        client.post(number)
    client.post(3, settled=True)


def _posting_twice_settled(client: Client) -> None:
    """It has not settled its posts yet."""
    client.sender("q", rcv_settle_mode=SECOND)
    client.post(0)
    client.post(1)
    client.send(0, Disposition(role=SENDER, first=0, settled=True))


def _uploading(client: Client) -> None:
    """It has sent half of a message."""
    client.sender("q")
    client.send(0, Transfer(0, 0, b"t", 0, more=True), payload=message(b"half"))


def _consuming(client: Client) -> None:
    """It has unsettled deliveries of an attached link, of a detached one, and of a closed one."""
    _filled(client)
    for handle in (1, 2, 3):
        client.receiver("q", handle, credit=1)
        client.inbox.clear()
    client.send(0, Detach(handle=1))
    client.send(0, Detach(handle=2, closed=True))


def _suspended(client: Client) -> None:
    """Its terminus outlives the session, and is resumed on another one."""
    _filled(client)
    client.receiver("q", credit=1, name="kept", source=_SUSPENDED)
    client.send(0, Detach(handle=1))
    client.send(0, End())
    client.inbox.clear()
    client.begin(0)
    client.receiver("q", name="kept", source=_SUSPENDED, unsettled={})


def _starving(client: Client) -> None:
    """Its incoming window has no room for the messages of its link."""
    _filled(client)
    client.flow(None, incoming_window=0)
    client.receiver("q")
    client.flow(1, 10, incoming_window=0)


def _requesting(client: Client) -> None:
    """It has a dynamic queue, a dynamic topic, and a subscription."""
    client.send(0, Attach("d", 1, RECEIVER, source=Source(dynamic=True), target=Target()))
    client.send(
        0,
        Attach("t", 2, SENDER, target=Target(dynamic=True, capabilities=(Symbol("topic"),)), initial_delivery_count=0),
    )
    client.receiver("amq.fanout", 3, credit=1)


def _declared(client: Client) -> bytes:
    client.sender(None, _CONTROL, target=Coordinator())
    _command(client, 1000, Declare())
    state = client.outcome(1000).state
    assert isinstance(state, Declared)
    return state.txn_id


def _command(client: Client, number: int, command: Declare | Discharge) -> None:
    payload = b"\x00\x53" + bytes((VALUE,)) + encode_composite(command)
    client.send(0, Transfer(_CONTROL, number, b"c%d" % number, 0), payload=payload)


def _work(client: Client) -> bytes:
    """It has posted, retired and acquired in a transaction."""
    _filled(client)
    client.receiver("q", credit=2)
    client.inbox.clear()
    ident = _declared(client)
    client.post(6, state=TransactionalState(ident))
    client.post(7, state=TransactionalState(ident), settled=True)
    state = TransactionalState(ident, Accepted())
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=state))
    client.send(0, Disposition(role=RECEIVER, first=1, settled=False, state=state))
    client.flow(1, 1, delivery_count=2, properties={Symbol("txn-id"): ident})
    return ident


def _in_a_transaction(client: Client) -> None:
    _work(client)


def _posting_part_of_a_transaction(client: Client) -> None:
    ident = _work(client)
    client.send(0, Transfer(0, 8, b"t", 0, state=TransactionalState(ident), more=True), payload=message(b"half"))


def _committed(client: Client) -> None:
    _command(client, 1001, Discharge(_work(client), fail=False))


def _rolled_back(client: Client) -> None:
    _command(client, 1001, Discharge(_work(client), fail=True))


def _refused(client: Client) -> None:
    """Links of it, its session, and it itself have been ended by the broker."""
    client.send(0, Attach("x", 0, RECEIVER, source=Source("queue://nothing"), target=Target()))
    client.send(0, Transfer(77, 0, b"t", 0))
    client.send(3, End())


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.rule("FAIR-2")
class TestMemory:
    @pytest.mark.parametrize(
        "use",
        [
            _idle,
            _posting,
            _posting_twice_settled,
            _uploading,
            _consuming,
            _suspended,
            _starving,
            _requesting,
            _in_a_transaction,
            _posting_part_of_a_transaction,
            _committed,
            _rolled_back,
            _refused,
        ],
    )
    def test_nothing_is_left_of_aborted_connections_without_the_collector(
        self, use: Callable[[Client], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hot, "MAX_TAILS", 1)  # a cache of transaction ids, which need not fill up here
        made, _ = connected()

        def once() -> None:
            other = Client(made, container="other")
            use(other)
            made.lose(other.port)
            for kept in (made.users, made.publishers, made.admissions, made.faults):  # of the test's server
                kept.clear()
            made.broker.access.set_permission("guest", "/", ".*", ".*", ".*")  # this empties the cache of permissions
            made.now += 7_200_000
            made.end_turn()
            made.broker.directory.purge(made.broker.directory.vhost("/").queue("q"))
            made.end_turn()
            made.run_disk()

        assert_nothing_is_left(once, ABORTED, KEPT, LEFT_BYTES)

    def test_nothing_is_left_of_logins_that_never_finished(self) -> None:
        made, _ = connected()

        def once() -> None:
            other = Client(made, opens=False)
            other.headers(SASL_HEADER)
            made.lose(other.port)

        once()
        before = len(gc.get_objects())
        for _ in range(ABORTED):
            once()
        assert len(gc.get_objects()) - before < KEPT
