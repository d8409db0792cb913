"""The broker at the ports and with the users that rabbit-hole's tests expect, in a network namespace of its own.

`python -m tests.interop.rabbit_hole PROGRAM FOLDER [OPTION ...]` runs the compiled tests against it, and exits with
their status. It must be started by `unshare --net`, because the tests name the ports 5672 and 15672.
"""

from __future__ import annotations

import base64
import fcntl
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.broker import BrokerProcess, wait_until

_HTTP = "127.0.0.1:15672"
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_ALL = {"configure": ".*", "write": ".*", "read": ".*"}
_OBJECTS: dict[str, object] = {
    "users/policymaker": {"password": "policymaker", "tags": "policymaker"},
    "vhosts/rabbit%2Fhole": {},
    "permissions/%2F/policymaker": _ALL,
    "permissions/rabbit%2Fhole/guest": _ALL,
    "permissions/rabbit%2Fhole/policymaker": _ALL,
}
"""What the script `bin/ci/before_build.sh` of rabbit-hole prepares, as far as the concept exists."""


def put(path: str, body: object) -> int:
    """Return the status of a PUT by the administrator `guest`; 0 if the HTTP process does not run yet."""
    connection = http.client.HTTPConnection(_HTTP, timeout=60)
    login = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    try:
        connection.request("PUT", f"/api/{path}", json.dumps(body), headers)
        return connection.getresponse().status
    except ConnectionError:
        return 0
    finally:
        connection.close()


def main(program: str, folder: Path, options: list[str]) -> int:
    """Prepare the broker, run the tests, and return their status."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    broker = BrokerProcess(folder, "--http", _HTTP)
    broker.port = 5672
    with broker:
        for path, body in _OBJECTS.items():
            wait_until(lambda path=path, body=body: put(path, body) in (201, 204), what=f"PUT {path}")  # type: ignore[misc]
        environment = {**os.environ, "GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT": "20s"}
        return subprocess.run([program, *options], cwd=folder, env=environment, timeout=240, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
