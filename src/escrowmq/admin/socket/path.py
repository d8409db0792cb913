"""Where the admin socket of a data directory is: `admin.sock` in it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NAME: Final = "admin.sock"
LONGEST: Final = 103 if sys.platform == "darwin" else 107
"""Bytes of a path that the system takes for a socket."""


@contextlib.contextmanager
def address(data_dir: Path) -> Iterator[str]:
    """A path to the socket that is short enough for the system. Raises OSError where there is none."""
    path = data_dir / NAME
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    links = Path("/proc/self/fd")
    if not links.is_dir():
        raise OSError(
            f"the path of {path} is too long for a socket ({LONGEST} bytes are possible); choose a shorter one"
        )
    folder = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield str(links / str(folder) / NAME)
    finally:
        os.close(folder)


def bind(data_dir: Path) -> socket.socket:
    """The listening socket, open to this user alone. One that a killed broker left is replaced. Raises OSError.

    The caller holds the lock of the data directory.
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
    """A connection to the broker that serves `data_dir`. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        with address(data_dir) as path:
            sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock
