"""Bytes between a transport and an endpoint."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import cast

import pytest

from escrowmq.admin.ports import OpenConnection
from escrowmq.core.watch import ChangeWatch
from escrowmq.server.connection import (
    CLOSING_MS,
    EXPIRED,
    LARGE_READ,
    PACED_READ,
    READ,
    SHARE,
    SMALL,
    SMALL_READ,
    UNSENT_LIMIT,
    ClientConnection,
    Pause,
)
from escrowmq.server.intake import EVENTS, LOGIN
from escrowmq.wire.endpoint import Peer
from escrowmq.wire.sniff import REFUSAL
from tests.unit.server.benches import FakeEndpoint, as_endpoint, on_loop, until
from tests.unit.server.scenes import HEADER, FakeTransport, Scene, receive


@pytest.fixture(autouse=True)
def _fakes(fake_protocol: None) -> None:
    """Endpoints are fakes."""


def test_the_endpoint_gets_every_byte_also_of_a_header_in_pieces() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, _ = scene.connect(greeting=b"")
        receive(connection, HEADER[:3])
        assert connection.endpoint is None
        receive(connection, HEADER[3:] + b"more")
        receive(connection, b"and more")
        assert cast("FakeEndpoint", connection.endpoint).heard == [HEADER + b"more", b"and more"]
        await scene.bench.close()

    on_loop(test)


@pytest.mark.parametrize(
    "greeting", [b"GETXGETX", b"POST / HTTP/1.1\r\n", b"AMQP\x00\x00\x08\x00", b"\x16\x03\x01\x00"]
)
def test_an_unknown_header_is_answered_and_closed(greeting: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, _ = scene.connect(greeting=greeting)
        assert (transport.sent, transport.closed) == (REFUSAL, "eof")
        receive(connection, b"more")
        assert transport.sent == REFUSAL
        await scene.bench.close()

    on_loop(test)
    assert ("TLS" in caplog.text) == greeting.startswith(b"\x16")


def test_output_is_sent_once_at_the_end_of_the_turn() -> None:
    async def test() -> None:
        scene = Scene()
        _, transport, endpoint = scene.connect()
        scene.stir(endpoint, b"a")
        scene.stir(endpoint, b"b")
        assert not transport.text()
        await until(lambda: transport.sent)
        assert transport.text() == b"ab"
        assert endpoint.outputs == 1
        await scene.bench.close()

    on_loop(test)


def test_a_finished_endpoint_is_closed_behind_its_last_bytes() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        endpoint.finished = True
        scene.stir(endpoint, b"bye")
        await until(lambda: transport.closed)
        assert (transport.sent, transport.closed) == (b"bye", "eof")
        receive(connection, b"late")
        assert endpoint.heard == [HEADER]
        now = scene.bench.broker.engine.now
        connection.tick(now + CLOSING_MS - 1000, 1)
        assert not transport.aborted()
        connection.tick(now + CLOSING_MS + 1000, 1)
        assert transport.aborted(), "a client that does not read its last bytes"
        await scene.bench.close()

    on_loop(test)


def test_the_end_of_a_connection_waits_for_the_client_so_that_nothing_unread_resets_it() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, _ = scene.connect()
        connection.pause(Pause.ALARM, on=True)
        connection.close()
        assert transport.closed == "eof"
        assert transport.is_reading(), "incoming bytes are discarded"
        connection.pause(Pause.JOURNAL, on=True)
        assert transport.is_reading()
        tls, reset = scene.connect()[:2], scene.connect()[:2]
        tls[1].half_closes = False
        reset[1].reset = True
        tls[0].close()
        reset[0].close()
        assert (tls[1].closed, reset[1].closed) == ("close", "abort")
        await scene.bench.close()

    on_loop(test)


def test_the_loss_is_told_once_and_the_connection_forgotten() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        scene.stir(endpoint, b"never sent")
        connection.connection_lost(None)
        await scene.bench.turns.synced()
        assert endpoint.told.count("lost") == 1
        assert endpoint.outputs == 0
        assert not scene.runtime.connections
        await scene.bench.close()

    on_loop(test)


def test_an_internal_error_closes_one_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        other = scene.connect()
        endpoint.fault = KeyError("broken")
        receive(connection, b"x")
        assert transport.closed == "abort"
        assert not other[1].closed
        await scene.bench.close()

    on_loop(test)
    assert "internal error on fake" in caplog.text


def test_a_slow_reader_is_told_to_the_endpoint_and_not_read_when_it_owes_too_much() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        low, high = transport.limits
        assert 0 < low < high == scene.runtime.limits.outbox
        transport.unsent = high + 1
        connection.pause_writing()
        assert endpoint.told[-1] == ("congested", high + 1)
        assert transport.is_reading()
        transport.unsent = UNSENT_LIMIT + 1
        scene.stir(endpoint, b"answer")
        await until(lambda: transport.sent)
        assert endpoint.told[-1] == ("congested", UNSENT_LIMIT + 1)
        assert not transport.is_reading()
        transport.unsent = low
        connection.resume_writing()
        assert endpoint.told[-1] == ("congested", low)
        assert transport.is_reading()
        await scene.bench.close()

    on_loop(test)


def test_reading_resumes_when_no_reason_for_a_pause_is_left() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, _ = scene.connect()
        connection.pause(Pause.ALARM, on=True)
        connection.pause(Pause.JOURNAL, on=True)
        connection.pause(Pause.ALARM, on=False)
        assert not transport.is_reading()
        connection.pause(Pause.JOURNAL, on=False)
        assert transport.is_reading()
        await scene.bench.close()

    on_loop(test)


def test_silence_that_we_impose_is_not_held_against_a_client() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        scene.runtime.admitted(endpoint, "alice", "/")
        start = scene.bench.broker.engine.now
        connection.tick(start + 5000, 10_000)
        assert endpoint.told[-1] == ("tick", 5000, 5000)
        connection.pause(Pause.ALARM, on=True)
        connection.tick(start + 7000, 10_000)
        assert endpoint.told[-1] == ("tick", 0, 7000)
        await scene.bench.close()

    on_loop(test)


def test_a_client_that_does_not_log_in_in_time_is_disconnected() -> None:
    async def test() -> None:
        scene = Scene()
        silent, silent_transport, _ = scene.connect(greeting=b"")
        stranger, stranger_transport, _ = scene.connect()
        user, user_transport, endpoint = scene.connect()
        scene.runtime.admitted(endpoint, "alice", "/")
        now = scene.bench.broker.engine.now
        for connection in (silent, stranger, user):
            connection.tick(now + 900, 1000)
        assert not silent_transport.aborted()
        for connection in (silent, stranger, user):
            connection.tick(now + 1100, 1000)
        assert silent_transport.aborted()
        assert stranger_transport.aborted()
        assert not user_transport.is_closing()
        await scene.bench.close()

    on_loop(test)


def test_a_connection_ends_with_its_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        other, _, staying = scene.connect()
        for each in (endpoint, staying):
            scene.runtime.admitted(each, "alice", "/")
        now = scene.bench.broker.engine.now
        connection.expires_ms = now + 500
        for client in (connection, other):
            client.tick(now + 499, 1000)
        assert "shut" not in str(endpoint.told)
        for client in (connection, other):
            client.tick(now + 500, 1000)
            client.tick(now + 600, 1000)
        assert str(endpoint.told).count(EXPIRED) == 1
        assert EXPIRED not in str(staying.told)
        await scene.bench.close()

    on_loop(test)
    assert [text for text in caplog.messages if "expired" in text] == [
        "connection from 127.0.0.1:5, user 'alice', closed: its token has expired"
    ]


@pytest.mark.parametrize(("size", "waits"), [(SHARE, False), (READ - 1, False), (READ, True)])
def test_a_large_read_ends_the_turn_and_a_full_buffer_waits_for_the_others(size: int, waits: bool) -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        await scene.bench.turns.synced()
        before = scene.bench.turns.count
        scene.stir(endpoint, b"answer")
        receive(connection, bytes(size))
        assert transport.text() == b"answer", "the turn has ended"
        assert scene.bench.turns.count == before + 1
        assert transport.is_reading() != waits
        await asyncio.sleep(0)
        assert transport.is_reading()
        await scene.bench.close()

    on_loop(test)


def test_less_is_read_at_once_while_publishers_outpace_consumers() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, _ = scene.connect()
        await scene.bench.turns.synced()
        scene.bench.broker.engine.budget.outpaced = True
        receive(connection, bytes(PACED_READ - 1))
        assert transport.is_reading()
        before = scene.bench.turns.count
        receive(connection, bytes(PACED_READ))
        assert not transport.is_reading(), "the buffer was full"
        assert scene.bench.turns.count == before + 1
        await asyncio.sleep(0)
        assert transport.is_reading()
        scene.bench.broker.engine.budget.outpaced = False
        assert len(connection.get_buffer(-1)) == READ
        await scene.bench.close()

    on_loop(test)


def test_a_client_whose_publishes_are_answered_is_not_read_in_smaller_pieces() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        scene.bench.broker.engine.budget.outpaced = True
        for answered, size in ((False, PACED_READ), (True, READ)):
            endpoint.answered = answered
            assert len(connection.get_buffer(-1)) == size
        await scene.bench.close()

    on_loop(test)


def test_more_is_read_at_once_while_the_client_publishes_large_bodies() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        assert len(connection.get_buffer(-1)) == READ
        endpoint.large_bodies = True
        receive(connection, bytes(LARGE_READ - 1))
        assert transport.is_reading()
        receive(connection, bytes(LARGE_READ))
        assert not transport.is_reading(), "the buffer was full"
        endpoint.large_bodies = False
        assert len(connection.get_buffer(-1)) == READ
        await scene.bench.close()

    on_loop(test)


def test_bytes_that_wait_are_not_overwritten_by_those_of_another_connection() -> None:
    async def test() -> None:
        scene = Scene()
        one, _, first = scene.connect()
        other, _, second = scene.connect()
        exhausted(scene)
        receive(one, b"one")
        receive(other, b"two")
        await until(lambda: len(second.heard) == 2)
        assert (first.heard, second.heard) == ([HEADER, b"one"], [HEADER, b"two"])
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-1")
def test_an_endpoint_with_unfinished_work_continues_later_and_is_not_read_meanwhile() -> None:
    async def test() -> None:
        scene = Scene()
        _, transport, endpoint = scene.connect()
        heard = len(endpoint.heard)
        scene.runtime.carry_on(as_endpoint(endpoint))
        assert not transport.is_reading()
        assert len(endpoint.heard) == heard
        await until(lambda: len(endpoint.heard) > heard)
        assert endpoint.heard[heard:] == [b""]
        assert transport.is_reading()
        await scene.bench.close()

    on_loop(test)


def exhausted(scene: Scene) -> None:
    """The iteration has handled as many events as it may."""
    while scene.runtime.intake.admit():
        pass


@pytest.mark.parametrize(("first", "read_on"), [(b"first", True), (bytes(SMALL + 1), False)])
def test_bytes_over_the_number_of_events_wait_in_order_and_much_is_not_read_meanwhile(
    first: bytes, read_on: bool
) -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        exhausted(scene)
        receive(connection, first)
        assert (endpoint.heard, transport.is_reading()) == ([HEADER], read_on)
        receive(connection, b"second")
        assert not transport.is_reading()
        await until(lambda: len(endpoint.heard) == 3)
        assert endpoint.heard == [HEADER, first, b"second"]
        assert transport.is_reading()
        await scene.bench.close()

    on_loop(test)


def test_a_deferred_loss_is_handled_after_the_bytes_before_it() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        exhausted(scene)
        receive(connection, b"last words")
        connection.connection_lost(None)
        assert endpoint.told == []
        await until(lambda: endpoint.told)
        assert (endpoint.heard[-1], endpoint.told) == (b"last words", ["lost"])
        assert not scene.runtime.connections
        await scene.bench.close()

    on_loop(test)


def test_the_end_of_a_stream_closes_at_once_or_later_but_always_in_order() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        assert not connection.eof_received(), "the transport closes itself"
        exhausted(scene)
        receive(connection, b"last words")
        assert connection.eof_received()
        assert not transport.closed
        await until(lambda: transport.closed)
        assert endpoint.heard[-1] == b"last words"
        connection.peer = replace(connection.peer, tls=True)
        exhausted(scene)
        assert not connection.eof_received(), "a transport with TLS cannot stay open"
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-1")
def test_clients_that_log_in_together_are_handled_fewer_at_a_time() -> None:
    async def test() -> None:
        scene = Scene(connections=100)
        connections = [scene.connect()[0] for _ in range(100)]  # each has sent its first bytes
        handled = [sum(connection.endpoint is not None for connection in connections)]
        while sum(handled) < 100:
            before = sum(handled)
            await asyncio.sleep(0)
            handled.append(sum(connection.endpoint is not None for connection in connections) - before)
        assert max(handled) == EVENTS // LOGIN
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-1")
def test_thousands_of_connections_that_close_together_are_handled_a_bounded_number_at_a_time() -> None:
    async def test() -> None:
        scene = Scene(connections=1000)
        connections = [scene.connect() for _ in range(1000)]
        await scene.bench.turns.synced()
        for connection, _, _ in connections:
            connection.connection_lost(None)
        handled = [1000 - len(scene.runtime.connections)]
        while scene.runtime.connections:
            before = len(scene.runtime.connections)
            await asyncio.sleep(0)
            handled.append(before - len(scene.runtime.connections))
        assert max(handled) == EVENTS
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-3")
def test_clients_are_read_in_small_pieces_while_too_much_that_was_read_waits() -> None:
    async def test() -> None:
        scene = Scene()
        held = scene.runtime.held_back
        held.limit, held._user_limit = 1000, 500
        connection, _, endpoint = scene.connect()
        endpoint.unread = 499
        receive(connection, b"x")
        assert len(connection.get_buffer(-1)) == READ
        endpoint.unread = 500
        receive(connection, b"x")
        endpoint.large_bodies = True
        assert len(connection.get_buffer(-1)) == SMALL_READ
        endpoint.unread, endpoint.large_bodies = 0, False
        scene.stir(endpoint, b"answer")
        await until(lambda: not held.bytes)
        assert len(connection.get_buffer(-1)) == READ
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-2")
def test_bytes_that_a_lost_client_has_left_unread_count_no_more() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        endpoint.unread = 500
        receive(connection, b"x")
        assert scene.runtime.held_back.bytes == 500
        connection.connection_lost(None)
        assert scene.runtime.held_back.bytes == 0
        await scene.bench.close()

    on_loop(test)


def test_a_client_that_another_process_has_accepted_is_judged_by_its_own_address() -> None:
    async def test() -> None:
        scene = Scene()
        client = Peer("192.0.2.7", 50_000, tls=True, certificate_user="app")
        connection = ClientConnection(scene.runtime, peer=client)
        connection.connection_made(cast("asyncio.Transport", FakeTransport(connection)))
        assert connection.peer == client
        await scene.bench.close()

    on_loop(test)


def test_what_lists_show_of_a_connection_does_not_change_without_a_note() -> None:
    async def test() -> None:
        scene = Scene()
        watch: ChangeWatch[OpenConnection] = ChangeWatch()
        scene.runtime.connection_watches.append(watch)
        connection, transport, _ = scene.connect(greeting=b"")
        assert watch.take() == [connection], "it is new"

        def changed() -> bool:
            found, connection.watched = watch.take(), True
            assert found in ([], [connection])
            return bool(found)

        changed()
        assert not changed()
        receive(connection, HEADER)
        assert changed(), "it may have logged in"
        connection.pause(Pause.ALARM, on=True)
        assert changed()
        connection.pause(Pause.ALARM, on=True)
        assert not changed(), "it was held back before"
        scene.stir(cast("FakeEndpoint", connection.endpoint), b"output")
        await until(lambda: transport.sent)
        assert changed(), "the output may be unsent, and tells of what has happened"
        connection.connection_lost(None)
        assert watch.take() == [connection], "it is gone"
        await scene.bench.close()

    on_loop(test)
