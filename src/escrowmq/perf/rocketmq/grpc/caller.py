"""Opens a connection of gRPC with its telemetry stream, on a blocking socket, before the load begins."""

from __future__ import annotations

import secrets
import socket
from typing import Final

from escrowmq.perf.errors import PerfError
from escrowmq.perf.rocketmq.grpc.requests import heartbeat_request, settings_request
from escrowmq.perf.rocketmq.grpc.transport import CallTemplate, GrpcTransport
from escrowmq.perf.url import Target

_CHUNK: Final = 65536


class GrpcCaller:
    """A connection of a producer, or of a consumer with a group."""

    def __init__(self, target: Target, topic: str, group: str, timeout: float) -> None:
        """Connect, and send the client's settings. Raises PerfError if the broker does not answer them."""
        self.address = target.address
        try:
            self.socket = socket.create_connection((target.host, target.port), timeout)
        except OSError as error:
            raise PerfError(f"cannot connect to RocketMQ at {self.address}: {error.strerror or error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport = GrpcTransport(target.address, f"perf@{secrets.token_hex(6)}")
        self.telemetry = self.transport.next_stream()
        self._heartbeat = heartbeat_request(group)
        self.rest = bytearray()
        """Bytes that were received and belong to the load."""
        try:
            self._open(settings_request(topic, group))
        except OSError as error:
            self.socket.close()
            raise PerfError(f"the broker at {self.address} does not speak RocketMQ's gRPC: {error}") from None
        except PerfError:
            self.socket.close()
            raise

    def _open(self, settings: bytes) -> None:
        template = CallTemplate(self.transport.block("Telemetry"), settings, ends=False)
        stream = self.transport.next_stream()
        first = CallTemplate(self.transport.block("Heartbeat"), self._heartbeat)
        self.socket.sendall(b"".join(self.transport.control) + template.call(self.telemetry, 0) + first.call(stream, 0))
        self.transport.control.clear()
        waiting = {self.telemetry, stream}
        while waiting:
            data = self.socket.recv(_CHUNK)
            if not data:
                raise PerfError(f"the server at {self.address} closed the connection")
            self.rest += data
            used, found = self.transport.receive(self.rest, len(self.rest))
            del self.rest[:used]
            waiting -= {each.stream for each in found}

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
