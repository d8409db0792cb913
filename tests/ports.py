"""Ports for servers that are started, killed and started again while other tests look for ports as well."""

from __future__ import annotations

import os
import socket
import sys
import weakref


def reserve_port(owner: object) -> int:
    """A port of 127.0.0.1 that the system gives to nobody else as long as `owner` lives, be a server there or not.

    On Linux, that is: there, a socket that is bound and does not listen is in no way of a server with SO_REUSEADDR.
    """
    with socket.socket() as sock:
        if sys.platform == "linux":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        if sys.platform == "linux":
            weakref.finalize(owner, os.close, sock.detach())
    return port
