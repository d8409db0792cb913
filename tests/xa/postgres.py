"""A real PostgreSQL for tests, from Debian's package `postgresql`: `with PostgreSQL(folder) as server: …`."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest

from tests.broker import wait_until
from tests.ports import reserve_port

USERS = ("postgres", "nobody")
START_SECONDS = 60.0
_STILL_USED = "pre-existing shared memory block"
"""A start is refused with this as long as a process of a server before is there, whose first process was killed."""


def programs() -> Path | None:
    """Return the folder of the newest installed initdb and postgres, or None."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parent.name.split(".") if part.isdigit())


needs_postgresql = pytest.mark.skipif(
    programs() is None, reason="PostgreSQL is not installed; on Debian and Ubuntu: apt-get install postgresql"
)


class PostgreSQL:
    """A server with the databases `bank` and `shop`, on 127.0.0.1 and a free port that it keeps across restarts.

    PostgreSQL refuses to run as root, so under root it runs as `postgres` or `nobody`, in a folder of that user.
    """

    def __init__(self, folder: Path, *, max_prepared_transactions: int = 100) -> None:
        bin_folder = programs()
        assert bin_folder is not None, "PostgreSQL is not installed"
        self._bin = bin_folder
        self._log = folder / "postgresql.log"
        self._user = next((user for user in USERS if _exists(user)), None) if os.getuid() == 0 else None
        # Other users cannot access pytest's folders.
        self._home = Path(tempfile.mkdtemp(prefix="escrowmq-pg-"))
        self._data = self._home / "data"
        self._prepared = max_prepared_transactions
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0  # where the log of the newest start begins
        self.port = reserve_port(self)
        if self._user is not None:
            shutil.chown(self._home, self._user)

    def url(self, database: str = "bank") -> str:
        return f"postgresql://escrow@127.0.0.1:{self.port}/{database}?connect_timeout=30"

    def connect(self, database: str = "bank", **keywords: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url(database), **keywords)

    def sessions(self, database: str) -> int:
        """Return the number of connected clients."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        with self.connect("postgres") as connection:
            row = connection.execute(query, (database,)).fetchone()
        assert row is not None
        return int(row[0])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> PostgreSQL:
        """Start the server, and return when it accepts connections."""
        new = not self._data.exists()
        if new:
            options = ("-D", str(self._data), "-U", "escrow", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
            self._run("initdb", *options)
        self._launch()
        wait_until(self._answers, START_SECONDS, f"PostgreSQL's start ({self._log})")
        if new:
            with self.connect("postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE bank")
                connection.execute("CREATE DATABASE shop")
        return self

    def _launch(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": str(self._home),
            "max_prepared_transactions": self._prepared,
            "shared_buffers": "16MB",
            "max_connections": 50,
            "fsync": "on",
        }
        arguments = [item for name, value in settings.items() for item in ("-c", f"{name}={value}")]
        self._began = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix(), str(self._bin / "postgres"), "-D", str(self._data), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Send SIGKILL to all of its processes, so that the next start must recover from the log."""
        if self._process is not None and self._process.poll() is None:
            _kill(self._process.pid, signal.SIGSTOP)  # so that it cannot start another process meanwhile
            for pid in _with_children(self._process.pid):
                _kill(pid)
            self._process.wait()
            wait_until(lambda: not _listens(self.port), what="PostgreSQL's end")

    def restart(self) -> PostgreSQL:
        self.kill()
        return self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _prefix(self) -> list[str]:
        if self._user is None:
            return []
        entry = pwd.getpwnam(self._user)
        return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._prefix(), str(self._bin / program), *arguments]
        done = subprocess.run(command, cwd=self._home, capture_output=True, check=False, text=True)
        assert done.returncode == 0, f"{program} failed: {done.stdout}{done.stderr}"

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            written = self._log.read_bytes()[self._began :].decode(errors="replace")
            assert _STILL_USED in written, f"PostgreSQL exited: {written[-3000:]}"
            self._launch()  # processes of a server that was killed are ending
            return False
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True


def _with_children(pid: int) -> list[int]:
    """Return the postmaster first, so that it restarts nothing, then its processes, each in a session of its own."""
    import psutil

    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return [pid]


def _kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
