"""Asks the HTTP interface for lists every second, as monitoring does: `python -m bench.poller PORT PATH [PATH ...]`.

It is a process of its own, so that it takes no time from the interpreter of the client that is measured. For each line
of its standard input, which has a number, it asks so many times, at intervals of a second. After each time it prints
the seconds that the answers took and their bytes.
"""

from __future__ import annotations

import base64
import http.client
import os
import sys
import time

_CHUNK = 1 << 20
_NICENESS = 5
_LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


def main() -> None:
    os.nice(_NICENESS)  # the poller stands for another machine
    port, *paths = sys.argv[1:]
    for line in sys.stdin:
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)  # idle ones are closed after 5 s
        due = time.monotonic()
        for _ in range(int(line)):
            time.sleep(max(due - time.monotonic(), 0))
            due += 1
            seconds, length = ask(connection, paths)
            print(f"{seconds:.3f} {length}", flush=True)
        connection.close()


def ask(connection: http.client.HTTPConnection, paths: list[str]) -> tuple[float, int]:
    """Ask once for each list, and return the seconds that this took and the bytes of the answers."""
    begin, length = time.monotonic(), 0
    for path in paths:
        connection.request("GET", path, headers=_LOGIN)
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        while data := answer.read(_CHUNK):
            length += len(data)
    return time.monotonic() - begin, length


if __name__ == "__main__":
    main()
