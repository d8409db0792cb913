"""Reserve ports for servers that are restarted while other tests look for free ports as well."""

from __future__ import annotations

import os
import socket
import sys
import weakref


def reserve_port(owner: object) -> int:
    """Return a port of 127.0.0.1 that the system assigns to no other socket as long as `owner` lives.

    This holds on Linux only, where a socket that is bound but does not listen does not disturb a server that uses
    SO_REUSEADDR. Elsewhere the port is merely free at the moment.
    """
    with socket.socket() as sock:
        if sys.platform == "linux":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        if sys.platform == "linux":
            weakref.finalize(owner, os.close, sock.detach())
    return port
