"""What an appender to NATS keeps of appends that failed, and how it ends; `tests/engines` has the tests on servers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from escrowmq.replica.engines import nats_appender, nats_socket
from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_append import WINDOW_ENTRIES
from escrowmq.replica.engines.nats_appender import NatsAppender
from escrowmq.replica.errors import AppendUnknown
from tests.broker import wait_until
from tests.unit.replica.engines.nats_server import NatsServer, stored

ADDRESS = EngineAddress.parse("nats://127.0.0.1:1/t")


def connected(*servers: NatsServer) -> NatsAppender:
    appender = NatsAppender(ADDRESS, 10)
    appender.connect([server.host for server in servers])
    return appender


def position(entry: bytes) -> bytes:
    return stored(int(entry))


def test_entries_have_the_positions_that_the_answers_tell() -> None:
    with NatsServer(position) as server:
        appender = connected(server)
        first, second = appender.send([b"4", b"5"]), appender.send([b"9"])
        assert second() == [9]
        assert first() == [4, 5]
        appender.close()


def test_an_answer_with_more_fields_is_understood() -> None:
    with NatsServer(lambda _: b'{"stream":"t","domain":"d","seq":8,"duplicate":true}') as server:
        appender = connected(server)
        assert appender.send([b"a"])() == [7]
        appender.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"error":1}',
        b'{"seq":"7"}',
        b'{"seq":7.5}',
        b'{"seq":Infinity}',
        b'{"seq":true}',
        b'{"seq":-1}',
        b'{"stream":"t", "seq":0}',
    ],
)
def test_an_answer_that_says_nothing_leaves_the_append_unknown(answer: bytes) -> None:
    with NatsServer(lambda _: answer) as server:
        appender = connected(server)
        with pytest.raises(AppendUnknown, match="it answered"):
            appender.send([b"a"])()
        appender.close()


def test_answers_that_never_come_are_not_waited_for_after_their_append_has_failed() -> None:
    refusal = json.dumps({"error": {"description": "no"}}).encode()
    with NatsServer(lambda entry: refusal if entry == b"a" else None) as server:
        appender = connected(server)
        with pytest.raises(AppendUnknown, match="did not store an append: no"):
            appender.send([b"a", b"b"])()
        assert not appender._waiting
        appender.close()


def test_an_append_without_an_answer_is_given_up_although_the_server_lives() -> None:
    with NatsServer() as server:
        appender = NatsAppender(ADDRESS, 1.0)
        appender.connect([server.host])
        finish = appender.send([b"a"])
        threading.Timer(0.1, server.say, [b"-ERR 'Permissions Violation for Publish'\r\n"]).start()
        with pytest.raises(AppendUnknown, match="Permissions Violation"):
            finish()
        appender.close()


def test_the_append_after_one_without_an_answer_is_made_at_another_host() -> None:
    with NatsServer() as silent, NatsServer(position) as server:
        appender = NatsAppender(ADDRESS, 1.0)
        appender.connect([silent.host, server.host])
        with pytest.raises(AppendUnknown, match="no answer"):
            appender.send([b"4"])()
        assert appender.send([b"5"])() == [5]
        assert appender.host == server.host
        appender.close()


def test_an_append_that_is_refused_for_some_seconds_is_repeated_at_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nats_appender, "_ACK_SECONDS", 0.3)
    with NatsServer(lambda _: 503) as lonely, NatsServer(position) as server:
        appender = connected(lonely, server)
        assert appender.send([b"5"])() == [5]
        assert appender.host == server.host
        appender.close()


def test_an_append_that_was_refused_is_repeated() -> None:
    answers: list[bytes | int] = [503, 503, stored(3)]
    with NatsServer(lambda _: answers.pop(0)) as server:
        appender = connected(server)
        assert appender.send([b"a"])() == [3]
        appender.close()


def test_an_appender_that_is_closed_does_not_repeat_an_append_that_is_refused() -> None:
    with NatsServer(lambda _: 503) as server:
        appender = connected(server)
        finish = appender.send([b"a"])
        closing = threading.Timer(0.3, appender.close)
        closing.start()
        began = time.monotonic()
        with pytest.raises(AppendUnknown, match="the connection was closed"):
            finish()
        assert time.monotonic() - began < 5
        closing.join()
        with pytest.raises(ConnectionError, match="the connection was closed"):
            appender.send([b"a"])


def test_an_append_that_waits_fails_when_the_appender_is_closed() -> None:
    with NatsServer() as server:
        appender = connected(server)
        finish = appender.send([b"a"])
        closing = threading.Timer(0.2, appender.close)
        closing.start()
        with pytest.raises(AppendUnknown):
            finish()
        closing.join()
        assert appender.host == ""


def test_an_entry_that_the_server_does_not_accept_is_not_sent() -> None:
    with NatsServer(position, max_payload=4) as server:
        appender = connected(server)
        with pytest.raises(AppendUnknown, match="it accepts 4 bytes, and the entry has 5"):
            appender.send([b"12345"])()
        assert appender.send([b"1234"])() == [1234]
        appender.close()


def test_answers_are_read_while_a_slow_server_takes_large_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_appender, "_ACK_SECONDS", 1.0)
    small, large = [b"1"] * WINDOW_ENTRIES, [bytes(900_000)] * 17

    def answer(entry: bytes) -> bytes:
        time.sleep(0.15 if len(entry) > 1 else 0)
        return stored(1)

    with NatsServer(answer) as server:
        appender = connected(server)
        assert len(appender.send(small + large)()) == len(small + large)
        appender.close()


def test_a_server_that_does_not_read_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_appender, "_ACK_SECONDS", 0.5)
    going_on = threading.Event()
    with NatsServer(lambda _: going_on.wait(10) and None) as server:
        appender = connected(server)
        began = time.monotonic()
        with pytest.raises(AppendUnknown, match="does not take"):
            appender.send([bytes(900_000)] * 17)()
        assert time.monotonic() - began < 2.5
        assert appender.host == ""
        going_on.set()
        appender.close()


def test_a_lost_connection_is_replaced_by_one_to_another_host() -> None:
    with NatsServer() as first, NatsServer(position) as second:
        appender = connected(first, second)
        finish = appender.send([b"1"])
        threading.Timer(0.1, first.drop).start()
        with pytest.raises(AppendUnknown, match="closed the connection"):
            finish()
        assert appender.send([b"2"])() == [2]
        assert appender.host == second.host
        appender.close()


def test_a_lost_connection_is_replaced_by_one_to_a_host_that_the_server_has_told() -> None:
    with NatsServer(position) as second:
        with NatsServer(connect_urls=[7, "", "nowhere", second.host]) as first:
            appender = connected(first)
            server_told = first.host
        with pytest.raises(AppendUnknown):
            appender.send([b"1"])()
        assert appender.send([b"2"])() == [2]
        assert appender.host == second.host
        assert appender._hosts == [second.host, server_told]
        appender.close()


def test_a_connection_that_is_lost_while_nobody_appends_is_made_again() -> None:
    with NatsServer(position) as server:
        appender = connected(server)
        server.drop()

        def connected_again() -> bool:
            appender._ran_at = 0.0
            appender.tend()
            return server.connections == 2 and appender.host != ""

        wait_until(connected_again, what="another connection")
        assert appender.send([b"2"])() == [2]
        appender.close()


@pytest.fixture
def frozen() -> Iterator[str]:
    """A host that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def disconnected(server: NatsServer, *others: str) -> NatsAppender:
    """An appender that was connected to a server and goes to the others next."""
    appender = NatsAppender(ADDRESS, 10)
    appender.connect([server.host, *others])
    server.drop()
    with pytest.raises(AppendUnknown):
        appender.send([b"1"])()
    return appender


def test_an_append_has_its_deadline_while_several_hosts_do_not_answer(
    frozen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_appender, "_ACK_SECONDS", 0.5)
    monkeypatch.setattr(nats_socket, "_CONNECT_SECONDS", 1.0)
    with NatsServer(position) as server:
        appender = disconnected(server, frozen, frozen)
        began = time.monotonic()
        with pytest.raises(AppendUnknown, match="cannot be reached"):
            appender.send([b"1"])()
        assert time.monotonic() - began < 1.5

        def append() -> bool:
            with suppress(AppendUnknown):
                return appender.send([b"1"])() == [1]
            return False

        wait_until(append, what="the host behind those that do not answer")
        appender.close()


def test_an_append_begins_at_once_while_the_tender_connects(frozen: str) -> None:
    with NatsServer(position) as server:
        appender = disconnected(server, frozen)
        appender._ran_at = 0.0
        tending = threading.Thread(target=appender.tend)
        tending.start()
        time.sleep(0.1)
        began = time.monotonic()
        finish = appender.send([b"1"])
        assert time.monotonic() - began < 0.5
        assert finish() == [1]
        tending.join()
        appender.close()


def test_an_append_that_connects_fails_when_the_appender_is_closed(frozen: str) -> None:
    with NatsServer(position) as server:
        appender = disconnected(server, frozen)
        finish = appender.send([b"1"])
        closing = threading.Timer(0.2, appender.close)
        closing.start()
        began = time.monotonic()
        with pytest.raises(AppendUnknown):
            finish()
        assert time.monotonic() - began < 0.9
        closing.join()


def test_an_appender_that_is_closed_does_not_keep_a_connection_that_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    going_on = threading.Event()
    resolve = socket.getaddrinfo

    def resolve_slowly(*args: Any, **options: Any) -> Any:
        going_on.wait(10)
        return resolve(*args, **options)

    with NatsServer() as server:
        monkeypatch.setattr(socket, "getaddrinfo", resolve_slowly)
        appender = NatsAppender(ADDRESS, 0.3)
        with pytest.raises(ConnectionError, match="no answer"):
            appender.connect([server.host])
        going_on.set()
        wait_until(lambda: server.connections == 1, what="the late connection")
        wait_until(lambda: not any(each.name == "replication-connecting" for each in threading.enumerate()))
        assert appender.host == ""
        wait_until(lambda: server.ended == 1, what="the end of the late connection")


def test_an_append_is_unknown_if_there_is_no_thread_that_could_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with NatsServer(position) as server:
        appender = disconnected(server)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(AppendUnknown, match="can't start new thread"):
                appender.send([b"1"])()
        assert appender.send([b"1"])() == [1]
        appender.close()


def test_hosts_that_do_not_answer_are_all_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = f"127.0.0.1:{listener.getsockname()[1]}"
    with NatsServer(refusal="Authorization Violation") as refusing:
        appender = NatsAppender(ADDRESS, 0.5)
        with pytest.raises(ConnectionError, match=rf"cannot be reached: {gone}: .*; {refusing.host}: .*Authorization"):
            appender.connect([gone, refusing.host])
