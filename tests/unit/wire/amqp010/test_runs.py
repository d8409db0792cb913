"""Transfers that are read by slices are stored exactly as others, wherever reads end and whatever follows them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec.spec import (
    ErrorCode,
    ExecutionException,
    ExecutionSync,
    MessageProperties,
    MessageTransfer,
    SessionCommandPoint,
    SessionCompleted,
)
from escrowmq.wire.amqp010.transfers import TransferReader
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp010.messaging import header, octets, queue

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["q", "r", "none"]),
        st.integers(1, 2),
        st.none() | st.integers(0, 2**40),
        st.none() | st.binary(min_size=16, max_size=16),
        st.sampled_from(["a", "bc", "\u00e4", "long text"]),
        st.binary(max_size=20),
        st.sampled_from([0, 1]),
    ),
    max_size=12,
)


def frames(client: Client, messages: list[Any]) -> list[bytes]:
    found = []
    for key, durable, time, ident, text, body, mode in messages:
        own = MessageProperties(message_id=ident, application_headers={"text": text, "n": time})
        head = header(own, routing_key=key, delivery_mode=durable, timestamp=time)
        found.append(octets(client, body, header=head, mode=mode))
    return found


def stored(client: Client) -> list[tuple[bytes, bytes]]:
    found = []
    for name in ("q", "r"):
        for entry in client.server.broker.directory.vhost("/").queue(name).order.take(10_000):
            found.append((entry.run.envelope.encode(), entry.content))
    return found


def connected() -> Client:
    client = Client()
    queue(client.server, "q", durable=False)
    queue(client.server, "r", durable=False)
    return client


@given(MESSAGES, st.integers(1, 4), st.data())
def test_any_reads_store_the_same(messages: list[Any], times: int, data: st.DataObject) -> None:
    together, apart = connected(), connected()
    messages = messages * times
    for one in frames(apart, messages):
        session = apart.port.endpoint.sessions[1]
        if session.runs is not None:
            session.runs.forget()
        apart.send_bytes(one)
    whole = b"".join(frames(together, messages))
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        together.send_bytes(whole[:cut])
        whole = whole[cut:]
    assert stored(together) == stored(apart)
    traffic = [one.server.broker.engine.counters.traffic_of("/", "amqp010") for one in (together, apart)]
    assert traffic[0].received == traffic[1].received == len(messages)
    assert traffic[0].dropped == traffic[1].dropped


def warm() -> Client:
    """A client whose next transfer to `q` is read by slices."""
    client = connected()
    client.send_bytes(b"".join(octets(client, b"%d" % number) for number in range(3)))
    client.completes(0, 2)
    return client


def test_transfers_that_look_alike_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    client = warm()
    monkeypatch.setattr(TransferReader, "read", None)
    client.send_bytes(b"".join(octets(client, b"%d" % number) for number in range(3, 2500)))
    client.completes(3, 2499)
    assert [content[-4:].lstrip(b"\0") for _, content in stored(client)][-1] == b"2499"


def test_a_command_behind_a_run_is_complete_after_it() -> None:
    client = warm()
    client.send_bytes(octets(client, b"x", delivery_mode=1) + client.octets(ExecutionSync()) + octets(client, b"y"))
    client.completes(3, 5)


def test_commands_that_come_again_are_not_executed_again() -> None:
    client = warm()
    client.control(SessionCommandPoint(1, 0))
    client.send_bytes(b"".join(octets(client, b"again") for _ in range(4)))
    assert client.expect(SessionCompleted).commands == ((1, 4),)
    assert len(stored(client)) == 5


def test_a_fault_of_a_run_ends_the_session() -> None:
    client = warm()
    client.server.broker.access.set_permission("guest", "/", ".*", "^$", ".*")
    client.send_bytes(b"".join(octets(client, b"no") for _ in range(3)))
    assert isinstance(client.inbox[0].operation, ExecutionException)
    client.raised(ErrorCode.UNAUTHORIZED_ACCESS)
    assert len(stored(client)) == 3


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("part", ["body", "header"])
def test_the_limits_hold_for_transfers_of_a_run(part: str) -> None:
    client = Client(server(message_size=100, header_size=100))
    queue(client.server)
    client.send_bytes(b"".join(octets(client, b"ok") for _ in range(3)))
    client.completes(0, 2)
    own = MessageProperties(content_type="x" * 200) if part == "header" else None
    head = header(own, routing_key="q")
    client.refused(MessageTransfer("", 1, 0), ErrorCode.RESOURCE_LIMIT_EXCEEDED, header=head, body=bytes(101))


def test_a_transfer_with_a_user_id_is_decoded() -> None:
    client = connected()
    for _ in range(3):
        client.send_bytes(octets(client, b"x", header=header(MessageProperties(app_id=b"other"), routing_key="q")))
    client.inbox.clear()
    head = header(MessageProperties(user_id=b"other"), routing_key="q")
    client.refused(MessageTransfer("", 1, 0), ErrorCode.UNAUTHORIZED_ACCESS, header=head, body=b"x")
