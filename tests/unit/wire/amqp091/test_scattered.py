"""Publishes to many queues that are read together reach the same queues, in the same order, as publishes read one by
one.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.scattered import Scattered
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import PERSISTENT, Server, bodies, fails_channel, pair, queue

NAMES = ("a", "bb", "c")
TRANSIENT = Properties(delivery_mode=1).encode()


def publish(name: str, body: bytes, props: bytes = PERSISTENT, *, mandatory: bool = False, exchange: str = "") -> bytes:
    return method_frame(1, spec.BasicPublish(exchange, name, mandatory)) + content_frames(1, props, body, 0)


def warmed(*, confirms: bool = False) -> tuple[Server, SimClient]:
    """Return a server with the queues `NAMES`, and a client whose publishes to them the server reads together."""
    made, client = pair()
    for name in NAMES:
        queue(client, name)
    if confirms:
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    for _ in range(2):
        client.send_bytes(b"".join(publish(name, b"warm") for name in NAMES))
    client.collect()
    client.inbox.clear()
    for name in NAMES:
        client.call(1, spec.QueuePurge(name), spec.QueuePurgeOk)
    return made, client


def waiting(made: Server) -> dict[str, list[bytes]]:
    return {name: bodies(made, name) for name in NAMES}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths, in octets, of everything that is read together."""
    found: list[int] = []
    read = Scattered.read

    def spied(self: Scattered, *arguments: object) -> int:
        behind = read(self, *arguments)  # type: ignore[arg-type]
        if behind != arguments[2]:
            found.append(behind - arguments[2])  # type: ignore[operator]
        return behind

    monkeypatch.setattr(Scattered, "read", spied)
    return found


def test_all_that_one_read_brings_is_read_together(reads: list[int]) -> None:
    made, client = warmed()
    reads.clear()
    octets = b"".join(publish(NAMES[n % 3], b"%d" % n) for n in range(1, 31))  # the first continues no run
    client.send_bytes(octets)
    assert reads == [len(octets)]
    assert waiting(made) == {name: [b"%d" % n for n in range(1, 31) if n % 3 == i] for i, name in enumerate(NAMES)}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.binary(max_size=5),
            st.sampled_from((PERSISTENT, PERSISTENT, TRANSIENT)),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.data(),
)
def test_however_they_are_cut_the_same_messages_arrive(
    some: list[tuple[str, bytes, bytes, bool]], data: st.DataObject
) -> None:
    octets = b"".join(publish(name, body, props, mandatory=mandatory) for name, body, props, mandatory in some)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=4)))
    made, client = warmed()
    for begin, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
        client.send_bytes(octets[begin:end])
    assert waiting(made) == {name: [body for other, body, _, _ in some if other == name] for name in NAMES}


def test_cut_anywhere() -> None:
    octets = b"".join(publish(NAMES[n % 3], b"%d" % n) for n in range(4))
    for cut in range(len(octets)):
        made, client = warmed()
        client.send_bytes(octets[:cut])
        client.send_bytes(octets[cut:])
        assert waiting(made) == {"a": [b"0", b"3"], "bb": [b"1"], "c": [b"2"]}, cut


def test_all_of_them_are_confirmed() -> None:
    _, client = warmed(confirms=True)
    client.send_bytes(b"".join(publish(NAMES[n % 3], b"x") for n in range(30)))
    assert client.expect(1, spec.BasicAck) == spec.BasicAck(36, multiple=True)


def test_a_deleted_queue_gets_nothing() -> None:
    made, client = warmed()
    client.call(1, spec.QueueDelete("bb"), spec.QueueDeleteOk)
    client.send_bytes(b"".join(publish(name, b"x") for name in NAMES))
    assert [bodies(made, "a"), bodies(made, "c")] == [[b"x"], [b"x"]]
    queue(client, "bb")
    client.send_bytes(b"".join(publish(name, b"y") for name in NAMES))
    assert waiting(made) == {"a": [b"x", b"y"], "bb": [b"y"], "c": [b"x", b"y"]}


def test_a_permission_that_is_withdrawn_ends_them() -> None:
    made, client = warmed()
    made.broker.directory.record_access(made.broker.access.set_permission("guest", "/", ".*", "", ".*"))
    client.send_bytes(b"".join(publish(name, b"x") for name in NAMES))
    fails_channel(client, 1, codes.ACCESS_REFUSED)
    assert waiting(made) == {name: [] for name in NAMES}


def test_a_transaction_begins_between_them(reads: list[int]) -> None:
    made, client = warmed()
    client.call(1, spec.TxSelect(), spec.TxSelectOk)
    reads.clear()
    client.send_bytes(b"".join(publish(name, b"x") for name in NAMES))
    assert reads == []
    assert waiting(made) == {name: [] for name in NAMES}
    client.call(1, spec.TxCommit(), spec.TxCommitOk)
    assert waiting(made) == {name: [b"x"] for name in NAMES}


def test_other_octets_for_the_same_queue_keep_their_place() -> None:
    made, client = warmed()
    reserved = bytearray(publish("a", b"2"))
    reserved[12] = 1  # the first argument of basic.publish, which has no meaning
    for _ in range(3):
        client.send_bytes(publish("a", b"1") + bytes(reserved) + publish("a", b"3"))
    assert bodies(made, "a") == [b"1", b"2", b"3"] * 3


def test_messages_for_a_queue_that_refuses_some_are_not_read_together(reads: list[int]) -> None:
    made, client = warmed(confirms=True)
    queue(client, "full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    reads.clear()
    for _ in range(3):
        client.send_bytes(publish("full", b"x") + publish("full", b"y"))
    assert reads == []
    assert bodies(made, "full") == [b"x"]
