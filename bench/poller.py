"""Asks the HTTP interface for lists every second, as monitoring does: `python -m bench.poller PORT PATH [PATH ...]`.

It is a process of its own, so that it takes no time from the interpreter of the client that is measured. After each
round it prints the seconds that the answers took and their bytes.
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
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
    due = time.monotonic()
    while True:
        begin, length = time.monotonic(), 0
        for path in paths:
            connection.request("GET", path, headers=_LOGIN)
            answer = connection.getresponse()
            if answer.status != 200:
                raise SystemExit(f"{path}: {answer.status}")
            while data := answer.read(_CHUNK):
                length += len(data)
        print(f"{time.monotonic() - begin:.3f} {length}", flush=True)
        due = max(due + 1, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


if __name__ == "__main__":
    main()
