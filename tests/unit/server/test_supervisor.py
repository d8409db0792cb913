"""Notifications to the supervisor of the process."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.server.supervisor import Supervisor
from tests.broker import wait_until


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(30)
        yield receiver


def test_nothing_is_sent_without_a_supervisor(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor.of({"WATCHDOG_USEC": "1000"})
    supervisor.ready("amqp://h")
    supervisor.stopping()
    supervisor.rest()
    assert not caplog.records


def test_the_states_are_sent_in_order(manager: socket.socket) -> None:
    supervisor = Supervisor.of({"NOTIFY_SOCKET": manager.getsockname()})
    supervisor.ready("amqp://127.0.0.1:5672")
    supervisor.stopping()
    assert manager.recv(200) == b"READY=1\nSTATUS=Serving amqp://127.0.0.1:5672\n"
    assert manager.recv(200).startswith(b"STOPPING=1\n")


def test_an_address_may_be_abstract() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")  # Linux picks an abstract address
        receiver.settimeout(30)
        Supervisor.of({"NOTIFY_SOCKET": "@" + receiver.getsockname()[1:].decode()}).stopping()
        assert receiver.recv(200).startswith(b"STOPPING=1\n")


@pytest.mark.parametrize("own", [{}, {"WATCHDOG_PID": str(os.getpid())}])
def test_signs_of_life_follow_until_the_rest(manager: socket.socket, own: dict[str, str]) -> None:
    async def live() -> None:
        supervisor = Supervisor.of({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "3000"} | own)
        supervisor.ready("x")
        for _ in range(3):
            await asyncio.to_thread(manager.recv, 200)
        supervisor.rest()
        assert not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]

    asyncio.run(live())


@pytest.mark.parametrize("environment", [{"WATCHDOG_PID": "1", "WATCHDOG_USEC": "3000"}, {"WATCHDOG_USEC": "soon"}, {}])
def test_a_watchdog_of_another_process_or_without_a_time_is_ignored(
    manager: socket.socket, environment: dict[str, str]
) -> None:
    Supervisor.of({"NOTIFY_SOCKET": manager.getsockname(), **environment}).ready("x")  # needs no event loop
    assert manager.recv(200).startswith(b"READY=1\n")


def test_a_supervisor_that_is_gone_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Supervisor.of({"NOTIFY_SOCKET": str(tmp_path / "absent")}).stopping()
    assert "the service manager cannot be notified (NOTIFY_SOCKET): " in caplog.text


def test_a_standby_is_ready_and_alive_until_it_leads(manager: socket.socket) -> None:
    supervisor = Supervisor.of({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "300000"})
    supervisor.waits_for_log()
    assert manager.recv(200) == b"STATUS=Reading the replicated log\n"
    supervisor.stands_by()
    states = [manager.recv(200) for _ in range(3)]  # without an event loop
    assert sorted(states) == [b"READY=1\nSTATUS=Standby, follows the replicated log\n", *[b"WATCHDOG=1\n"] * 2]
    supervisor.leads()
    wait_until(lambda: "signs-of-life" not in {each.name for each in threading.enumerate()}, 30, "no more signs")


def test_a_standby_without_a_watchdog_gives_no_signs(manager: socket.socket) -> None:
    supervisor = Supervisor.of({"NOTIFY_SOCKET": manager.getsockname()})
    supervisor.waits_for_log()
    assert "signs-of-life" not in {each.name for each in threading.enumerate()}


def test_a_broker_that_hands_over_does_not_say_that_it_stops(manager: socket.socket) -> None:
    Supervisor.of({"NOTIFY_SOCKET": manager.getsockname()}).hands_over()
    assert manager.recv(200) == b"STATUS=Closing connections, so that another node leads\n"
