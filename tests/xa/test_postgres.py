"""The server that other tests use as the other participant starts again after every kill."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from tests.broker import wait_until
from tests.xa.postgres import PostgreSQL, needs_postgresql

pytestmark = needs_postgresql


def test_it_starts_again_while_processes_of_a_killed_server_are_ending(tmp_path: Path) -> None:
    with PostgreSQL(tmp_path) as server:
        session = server.connect("postgres")
        left = session.info.backend_pid
        os.kill(left, signal.SIGSTOP)
        os.kill(server.pid, signal.SIGKILL)
        assert server._process is not None
        server._process.wait()  # `restart` would kill all processes of a server that has not ended yet
        starting = threading.Thread(target=server.restart)
        starting.start()
        try:
            log = tmp_path / "postgresql.log"
            wait_until(lambda: "pre-existing shared memory block" in log.read_text(), what="a refused start")
        finally:
            os.kill(left, signal.SIGKILL)
            starting.join()
        session.close()
        server.connect("postgres").close()
