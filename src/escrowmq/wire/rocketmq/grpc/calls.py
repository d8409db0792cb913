"""One call: a request, or a stream of requests, and its responses, with the deadline that the client has set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from escrowmq.wire.rocketmq.grpc.framing import MessageReader, prefixed, timeout_ms
from escrowmq.wire.rocketmq.grpc.status import HEAD, GrpcFault, GrpcStatus, failure, trailers

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.wire.http2.connection import Http2Connection
    from escrowmq.wire.http2.headers import Headers
    from escrowmq.wire.http2.stream import Stream
    from escrowmq.wire.rocketmq.grpc.methods import StreamMethod, UnaryMethod


_OK: Final = trailers(GrpcStatus.OK)


class Encodable(Protocol):
    """A message of protocol buffers."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - the library's name
        ...


class Call:
    """A call on its stream. After its end, all further answers are dropped."""

    __slots__ = (
        "_begun",
        "_connection",
        "_prove",
        "_stream",
        "counted",
        "deadline",
        "due",
        "is_over",
        "metadata",
        "method",
        "on_end",
        "on_message",
        "reader",
        "requests",
    )

    def __init__(
        self,
        connection: Http2Connection,
        stream: Stream,
        headers: Headers,
        now_ms: int,
        prove: Callable[[int], int] = int,
    ) -> None:
        """`prove` is `LogPort.proof_lsn`. Raises GrpcFault for headers that no call has."""
        self._connection = connection
        self._prove = prove
        self._stream = stream
        self._begun = False
        self.is_over = False
        self.metadata: dict[bytes, bytes] = dict(headers)
        self.method: UnaryMethod | StreamMethod
        self.requests: list[bytes] = []
        """Messages that have arrived and are not handled yet."""
        self.counted = 0
        """The part of `kept` that the endpoint has counted."""
        self.on_message: Callable[[Any], None] | None = None
        """Set by the handler of a stream of requests."""
        self.on_end: Callable[[], None] | None = None
        """Called when the call is over, in whatever way."""
        self.deadline: Deadline | None = None
        self.reader = MessageReader(self.metadata.get(b"grpc-encoding", b""))
        timeout = timeout_ms(self.metadata.get(b"grpc-timeout", b""))
        self.due = None if timeout is None else now_ms + timeout
        """The time at which the client gives up; None if it waits for ever."""

    @property
    def kept(self) -> int:
        """The number of octets of requests that are kept: incomplete ones, and those that wait for the call's end."""
        return self.reader.size + sum(map(len, self.requests))

    def text(self, name: bytes) -> str:
        """Return a header as text, or an empty one."""
        return self.metadata.get(name, b"").decode("utf-8", "replace")

    @property
    def writable(self) -> bool:
        """Whether what is sent now leaves without waiting for the client's window."""
        return not self.is_over and not self._stream.unsent and self._stream.send_window > 0

    def answer(self, response: Encodable, after: int = 0) -> None:
        """Send the only response, and end the call, when the log is synced up to `after` and has nothing newer."""
        if not self.is_over:
            self.answer_with(response.SerializeToString(), after)

    def answer_with(self, message: bytes, after: int) -> None:
        """Do `answer` with a response that is encoded."""
        if not self.is_over:
            self._connection.respond(self._stream, HEAD, prefixed(message), _OK, self._prove(after))
            self.over()

    def send(self, response: Encodable, after: int = 0) -> None:
        """Send one of several responses."""
        if not self.is_over:
            if not self._begun:
                self._begun = True
                self._connection.begin(self._stream, HEAD, after)
            self._connection.send(self._stream, prefixed(response.SerializeToString()), after)

    def finish(self, after: int = 0) -> None:
        """End the call after its responses."""
        if not self.is_over:
            block = trailers(GrpcStatus.OK)
            self._connection.finish(self._stream, block if self._begun else HEAD + block, after)
            self.over()

    def fail(self, fault: GrpcFault) -> None:
        """End the call with a fault."""
        if not self.is_over:
            block = failure(fault)
            self._connection.finish(self._stream, block if self._begun else HEAD + block)
            self.over()

    def over(self) -> None:
        """The call has ended: by its answer, by the client, or with its connection."""
        if self.is_over:
            return
        self.is_over = True
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
        self.requests.clear()
        self.on_message = None
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()
