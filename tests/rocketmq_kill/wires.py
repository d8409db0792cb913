"""Connections that write many requests at once, and report each answer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Final

from tests.harness.rocketmq_calls import Answered, Asked, Calls, Checked

_TIMEOUT: Final = 30.0
_CHUNK: Final = 1 << 18

Note = Callable[[Answered], None]


class Wire:
    """A connection. Raises OSError when the broker is gone."""

    def __init__(self, port: int, calls: Calls, host: str = "127.0.0.1") -> None:
        self.checked: list[Checked] = []
        """The checks that the broker has asked for meanwhile."""
        self._calls = calls
        self._socket = socket.create_connection((host, port), _TIMEOUT)
        self._socket.sendall(calls.opening())

    def exchange(self, requests: Sequence[Asked], note: Note, *, all_answered: bool = False) -> None:
        """Write all requests at once, and wait for their answers. See `Calls.encode` for `all_answered`."""
        calls = self._calls
        self._socket.sendall(calls.encode(requests, all_answered=all_answered))
        while calls.waiting:
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            for each in calls.read(data):
                if isinstance(each, Answered):
                    note(each)
                else:
                    self.checked.append(each)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
