"""The common base of a channel's parts: requests and answers, and closing."""

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
    """The type of DEFAULT."""

    def __repr__(self) -> str:
        return "the connection's timeout"


DEFAULT: Final = Default()
"""Wait for at most the connection's `timeout`."""
Timeout = float | Default | None
"""A time limit in seconds; None waits without limit."""


class ChannelBase:
    """One channel number of a connection, with its requests and its state."""

    def __init__(self, connection: Link, number: int) -> None:
        self.connection = connection
        self.channel_number = number
        self.flowing = True
        """False while the broker has stopped content on this channel (channel.flow)."""
        self.mode = ""
        """"tx" or "confirm" once that mode is selected, otherwise empty."""
        self.in_branch = False
        """Whether publishes and settlements belong to the branch that `tpc_begin` started."""
        self.demarcates = False
        """Whether dtx-demarcation.select has been sent."""
        self.requests = Requests()
        self.error: Closed | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel_number} of {self.connection!r}>"

    def check_mode(self, what: str) -> None:
        """Raise ProgrammingError if the channel has taken part in a branch.

        The broker would answer a change of mode by closing the channel and rolling the branch back.
        """
        if self.demarcates:
            raise ProgrammingError(
                f"{what} is not possible on a channel that has taken part in a branch; open another channel"
            )

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used."""
        return not self._closed and self.error is None and self.connection.is_open

    @property
    def is_closed(self) -> bool:
        """Whether the channel can no longer be used."""
        return not self.is_open

    # -- requests

    def rpc(self, method: Method, content: Content | None = None, *, timeout: Timeout = DEFAULT) -> Answer[Any]:
        """Send any protocol method that the broker answers, and wait for the answer.

        `timeout` is in seconds. An answer that arrives after the timeout is dropped.

        Returns the broker's method and its content, which is None for a method without content.

        Raises:
            ChannelClosed: The broker answered by closing the channel.
            ConnectionClosed: The broker closed the connection, or it was lost.
            Timeout: No answer came within `timeout`.
            ProgrammingError: The method has no answer (see `send`), or cannot be encoded.
        """
        with self.connection.guard:
            request = self.begin(method, content)
            if request is None:
                raise ProgrammingError(f"{method.NAME} has no answer; use send() for it")
            return self.finish(request, timeout)

    def send(self, method: Method, content: Content | None = None) -> None:
        """Send any protocol method that the broker does not answer.

        Raises:
            ProgrammingError: The method has an answer (see `rpc`), or cannot be encoded.
        """
        with self.connection.guard:
            if self.begin(method, content) is not None:
                raise ProgrammingError(f"{method.NAME} has an answer; use rpc() for it")

    def begin(self, method: Method, content: Content | None = None) -> Any:
        """Send a method without waiting. Returns the request to pass to `finish`, or None if there is no answer.

        For use inside the package.
        """
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
        """Wait for the answer to a request that `begin` returned. For use inside the package."""
        self.connection.wait_for(
            lambda: request.answer is not None or self.error is not None, timeout, f"answer to {request.name}"
        )
        if request.answer is None:
            self.check_open()
        answer: Answer[Any] = request.answer
        return answer

    def check_open(self) -> None:
        """Raise the error that closed the channel, or InterfaceError if the application closed it."""
        self.connection.check_open()
        if self.error is not None:
            raise self.error.again()
        if self._closed:
            raise InterfaceError(f"channel {self.channel_number} is closed")

    def check_work(self, what: str) -> None:
        """Raise ProgrammingError while the branch is prepared, and the closing error if the channel is closed.

        `what` names the operation in the error.
        """
        self.check_open()
        if self.connection.tpc_prepared:
            raise ProgrammingError(f"{what} is not possible after tpc_prepare; call tpc_commit or tpc_rollback first")

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown", *, timeout: Timeout = DEFAULT) -> None:
        """Close the channel. Uncommitted work is rolled back, and unsettled deliveries return to their queues."""
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

    # -- incoming methods

    def on_method(self, method: Method, content: Content | None) -> None:
        """Handle a method from the broker."""
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
        """Handle a mandatory message that was returned."""

    def on_confirm(self, method: spec.BasicAck | spec.BasicNack) -> None:
        """Handle the broker's confirmation or refusal of publishes."""

    def on_cancel(self, method: spec.BasicCancel) -> None:
        """Handle the cancellation of a consumer by the broker."""

    def on_deliveries(self, run: Run) -> None:
        """Handle deliveries."""

    @property
    def pending(self) -> bool:
        """Whether there is anything to dispatch."""
        return False

    def dispatch(self) -> int:
        """Run the callbacks for everything that has arrived. Returns the number of callbacks."""
        return 0
