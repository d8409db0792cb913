"""A channel without its methods: requests and answers, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from escrowmq.client.errors import Closed, InterfaceError, ProgrammingError, Returned, channel_closed
from escrowmq.client.incoming import Run
from escrowmq.client.requests import Answer, Content, Requests
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from escrowmq.client.link import Link


class Default:
    """Type of DEFAULT."""

    def __repr__(self) -> str:
        return "the connection's timeout"


DEFAULT: Final = Default()
"""Wait as long as the connection's `timeout` says."""
Timeout = float | Default | None
"""Seconds; None waits for ever."""


class ChannelBase:
    """What all parts of a channel stand on."""

    def __init__(self, connection: Link, number: int) -> None:
        self.connection = connection
        self.channel_number = number
        self.flowing = True
        """False while the broker asks (channel.flow) to send no content."""
        self.mode = ""
        """"tx" or "confirm", once that is selected."""
        self.in_branch = False
        """Whether what is published and settled belongs to the branch that `tpc_begin` has begun."""
        self.demarcates = False
        """Whether dtx-demarcation.select was sent."""
        self.requests = Requests()
        self.error: Closed | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel_number} of {self.connection!r}>"

    def check_mode(self, what: str) -> None:
        """Raises ProgrammingError where the broker would close the channel, and roll its branch back."""
        if self.demarcates:
            raise ProgrammingError(f"{what} on a channel that has taken part in a branch; open another one for it")

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return not self._closed and self.error is None and self.connection.is_open

    @property
    def is_closed(self) -> bool:
        """Whether it can no longer be used."""
        return not self.is_open

    # -- requests

    def rpc(self, method: Method, content: Content | None = None, *, timeout: Timeout = DEFAULT) -> Answer[Any]:
        """Send any method of the protocol that is answered, and wait for its answer: `(method, content or None)`.

        Raises ChannelClosed or ConnectionClosed if that is the answer, Timeout after `timeout` seconds (an answer that
        comes later is dropped), ProgrammingError for a method without an answer (see `send`).
        """
        with self.connection.guard:
            request = self.begin(method, content)
            if request is None:
                raise ProgrammingError(f"{method.NAME} has no answer, send it by send()")
            return self.finish(request, timeout)

    def send(self, method: Method, content: Content | None = None) -> None:
        """Send any method that is not answered. ProgrammingError for one that is."""
        with self.connection.guard:
            if self.begin(method, content) is not None:
                raise ProgrammingError(f"{method.NAME} is answered, send it by rpc()")

    def begin(self, method: Method, content: Content | None = None) -> Any:
        """Send without waiting; the request to wait for, None if there is no answer. For use inside the package."""
        self.check_open()
        try:
            data = method_frame(self.channel_number, method)
        except (ValueError, TypeError, AttributeError) as error:
            raise ProgrammingError(str(error)) from error
        if method.HAS_CONTENT:
            props, body = content or Content(NO_PROPERTIES, b"")
            data += content_frames(self.channel_number, props, body, self.connection.frame_max)
        request = self.requests.add(method)
        self.connection.send(data)
        return request

    def finish(self, request: Any, timeout: Timeout = DEFAULT) -> Answer[Any]:
        """Wait for the answer to what `begin` has sent. For use inside the package."""
        self.connection.wait_for(
            lambda: request.answer is not None or self.error is not None, timeout, f"answer to {request.name}"
        )
        if request.answer is None:
            self.check_open()
        answer: Answer[Any] = request.answer
        return answer

    def check_open(self) -> None:
        """Raise what closed the channel, or InterfaceError if that was the program itself."""
        self.connection.check_open()
        if self.error is not None:
            raise self.error.again()
        if self._closed:
            raise InterfaceError(f"channel {self.channel_number} is closed")

    def check_work(self, what: str) -> None:
        """Refuse what would be work of a branch while that is prepared, and on a closed channel."""
        self.check_open()
        if self.connection.tpc_prepared:
            raise ProgrammingError(f"{what} between tpc_prepare and tpc_commit or tpc_rollback")

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown", *, timeout: Timeout = DEFAULT) -> None:
        """Close it; what is not committed is rolled back, what is not settled goes back to its queue."""
        with self.connection.guard:
            if self._closed or self.error is not None or not self.connection.is_open:
                self._closed = True
                return
            try:
                self.connection.leave_branch(self)
                request = self.begin(spec.ChannelClose(reply_code, reply_text, 0, 0))
                self.connection.wait_for(
                    lambda: request.answer is not None or self.error is not None, timeout, "channel.close-ok"
                )
            finally:
                self._closed = True
                self.connection.dropped(self)

    # -- what comes

    def on_method(self, method: Method, content: Content | None) -> None:
        """A method of the broker."""
        if self.requests.expects(method.INDEX):
            self.requests.answered(method, content)
        elif isinstance(method, spec.ChannelClose):
            of = spec.METHODS.get(method.class_id << 16 | method.method_id)
            self.error = channel_closed(
                method.reply_code, method.reply_text, of.NAME if of else "", self.channel_number
            )
            self.connection.answer(self.channel_number, spec.ChannelCloseOk())
            self.connection.dropped(self)
        elif isinstance(method, spec.ChannelFlow):
            self.flowing = method.active
            self.connection.answer(self.channel_number, spec.ChannelFlowOk(method.active))
        elif content is not None and isinstance(method, spec.BasicReturn):
            self.on_return(Returned(method, content.properties, content.body))
        elif isinstance(method, spec.BasicAck | spec.BasicNack):
            self.on_confirm(method)
        elif isinstance(method, spec.BasicCancel):
            self.on_cancel(method)

    def on_return(self, returned: Returned) -> None:
        """A mandatory message has come back."""

    def on_confirm(self, method: spec.BasicAck | spec.BasicNack) -> None:
        """The broker answers for publishes."""

    def on_cancel(self, method: spec.BasicCancel) -> None:
        """The broker cancels a consumer."""

    def on_deliveries(self, run: Run) -> None:
        """Deliveries have come."""

    @property
    def pending(self) -> bool:
        """Whether there is something to dispatch."""
        return False

    def dispatch(self) -> int:
        """Run callbacks for what has come; how many were run."""
        return 0
