"""A blocking connection to a name server or a broker, for everything that happens before and after the load."""

from __future__ import annotations

import socket
from typing import Final

from escrowmq.perf.errors import PerfError
from escrowmq.perf.rocketmq.remoting.answers import RemotingAnswer, answers
from escrowmq.perf.rocketmq.remoting.encoding import command

_CHUNK: Final = 65536


class RemotingCaller:
    """A connection. The load takes over its socket when it begins."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        """Connect. `timeout` (s) applies to each request. Raises PerfError if nothing answers there."""
        self.address = f"{host}:{port}"
        self.rest = bytearray()
        """Bytes that were received after the last answer."""
        self._number = 0
        try:
            self.socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise PerfError(f"cannot connect to RocketMQ at {self.address}: {error.strerror or error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingAnswer:
        """Send a request, and return its answer. Raises PerfError if it is refused."""
        answer = self.try_call(code, fields, body)
        if answer.code:
            raise PerfError(f"the broker at {self.address} refused request {code}: {answer.remark}")
        return answer

    def try_call(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingAnswer:
        """Send a request, and return its answer, also a refusal."""
        self._number += 1
        try:
            self.socket.sendall(command(code, fields, body, self._number))
            while True:
                used = [0]
                for answer in answers(self.rest, len(self.rest), used):
                    if answer.is_response and answer.opaque == self._number:
                        del self.rest[: used[0]]
                        return answer
                del self.rest[: used[0]]
                data = self.socket.recv(_CHUNK)
                if not data:
                    raise PerfError(f"the broker at {self.address} closed the connection")
                self.rest += data
        except TimeoutError:
            raise PerfError(f"the broker at {self.address} did not answer in time") from None
        except OSError as error:
            raise PerfError(f"lost the connection to the broker at {self.address}: {error.strerror or error}") from None

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
