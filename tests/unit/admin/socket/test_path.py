"""The path of the admin socket, and its permissions."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from escrowmq.admin.socket import path as socket_path
from escrowmq.admin.socket.client import AdminError, ask


@pytest.mark.parametrize("length", [1, 150])
def test_the_socket_is_in_the_data_directory_for_any_length_of_path(tmp_path: Path, length: int) -> None:
    folder = tmp_path / ("d" * length)
    folder.mkdir()
    with socket_path.bind(folder) as sock:
        assert stat.S_IMODE((folder / "admin.sock").stat().st_mode) == 0o600
        sock.setblocking(True)
        with socket_path.connect(folder, 5) as client, sock.accept()[0] as accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


def test_the_socket_of_a_killed_broker_is_replaced(tmp_path: Path) -> None:
    socket_path.bind(tmp_path).close()
    with pytest.raises(ConnectionRefusedError):
        socket_path.connect(tmp_path, 5)
    socket_path.bind(tmp_path).close()


@pytest.mark.parametrize("folder", ["", "absent"])
def test_without_a_broker_the_error_gives_advice(tmp_path: Path, folder: str) -> None:
    advice = (
        r"no broker runs on .*; name the data directory .* with --data-dir, or start a broker with: escrowmq serve "
    )
    with pytest.raises(AdminError, match=advice):
        ask(tmp_path / folder, "status")


def test_an_answer_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    sock = socket_path.bind(tmp_path)
    sock.setblocking(True)

    def hang_up() -> None:
        sock.accept()[0].close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    with pytest.raises(AdminError, match="closed the connection before its answer was complete"):
        ask(tmp_path, "status")
    thread.join()
    sock.close()
