"""The path of the admin socket: `admin.sock` in the data directory."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NAME: Final = "admin.sock"
LONGEST_REQUEST: Final = 1 << 20
"""The maximum length of a request, a line, in bytes. The broker disconnects a client that sends a longer one."""
LONGEST: Final = 103 if sys.platform == "darwin" else 107
"""The longest path of a socket that the system accepts, in bytes."""


@contextlib.contextmanager
def address(data_dir: Path) -> Iterator[str]:
    """A path to the socket that is short enough for the system. Raises OSError if there is none."""
    path = data_dir / NAME
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    links = Path("/proc/self/fd")
    if not links.is_dir():
        raise OSError(
            f"{path} is too long for the path of a socket, which may have {LONGEST} bytes; use another data directory"
        )
    folder = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield str(links / str(folder) / NAME)
    finally:
        os.close(folder)


def bind(data_dir: Path) -> socket.socket:
    """Return a listening socket that only this user may open. It replaces the socket of a killed broker. Raises
    OSError.

    The caller must hold the lock of the data directory.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        (data_dir / NAME).unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            with address(data_dir) as path:
                sock.bind(path)
        finally:
            os.umask(mask)
        sock.listen(16)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def connect(data_dir: Path, timeout: float) -> socket.socket:
    """Return a connection to the broker that serves `data_dir`; `timeout` is in seconds. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        with address(data_dir) as path:
            sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock
