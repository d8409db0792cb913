"""The pair of links to the management node: requests come in on one, responses go out on the other.

Both links have the same name, in one session. The client gets credit for requests as soon as both are attached. A
request that is waiting for its response counts against that credit, so a client that does not take its responses cannot
send further requests.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp10.answers import MASK
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Transfer
from escrowmq.wire.amqp10.codec.states import ACCEPTED
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import PRECONDITION_FAILED, TRANSFER_LIMIT_EXCEEDED, link_fault
from escrowmq.wire.amqp10.management.requests import AwaitedResponse, ManagementRequest, Response, encode, read
from escrowmq.wire.amqp10.management.routes import answer
from escrowmq.wire.amqp10.sending import divided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.wire.amqp10.codec.performatives import Attach, Flow
    from escrowmq.wire.amqp10.link import Link
    from escrowmq.wire.outbox import Piece

ADDRESS: Final = "/management"
PAIRED: Final = {Symbol("paired"): True}
"""The properties of a link that is one half of a pair."""
CREDIT: Final = 100
"""Requests that a client may send ahead of their responses."""


class RequestLink:
    """The broker's end of the link on which requests arrive."""

    __slots__ = ("_count", "_limit", "link")

    second = False  # requests are settled when they are executed

    def __init__(self, link: Link, request: Attach) -> None:
        self.link = link
        self._count = self._limit = request.initial_delivery_count or 0

    @property
    def _responses(self) -> ResponseLink | None:
        """The other half of the pair, if it is attached."""
        for link in self.link.session.links.values():
            if link.name == self.link.name and isinstance(link.end, ResponseLink):
                return link.end
        return None

    # -- credit

    def spend(self, count: int) -> None:
        """Count `count` requests. Raises AmqpFault if they exceed the credit."""
        self._count += count
        if self._count > self._limit:
            raise link_fault(TRANSFER_LIMIT_EXCEEDED, "more requests than the credit allows")

    def grant(self, *, echo: bool = False) -> None:
        """Grant credit, unless at least half of it is left, or the pair is incomplete."""
        responses = self._responses
        most = CREDIT - responses.waiting if responses is not None else 0
        left = self._limit - self._count
        if echo or (left * 2 < CREDIT and left < most):
            self._limit = max(self._limit, self._count + most)
            self.link.session.send_flow(
                handle=self.link.handle,
                delivery_count=self._count & MASK,
                link_credit=self._limit - self._count,
                drain=False,
            )

    def flow(self, flow: Flow) -> None:
        """Answer the client, if it asks for the state of the link."""
        if flow.echo:
            self.grant(echo=True)

    # -- requests

    def command(self, number: int, message: bytes, *, settled: bool) -> Iterator[None] | None:
        """Execute a request. The result is a task if it ends in a later turn. Raises AmqpFault."""
        session = self.link.session
        if self._responses is None:
            raise link_fault(PRECONDITION_FAILED, "no link of the same name receives the responses of this session")
        request = read(session.connection, message)
        if not settled:
            session.answer(RECEIVER, number, number, settled=True, state=ACCEPTED)
        found = answer(request)
        if isinstance(found, Response):
            self._respond(request, found)
            return None
        if isinstance(found, AwaitedResponse):
            found.begin(partial(self._respond, request))
            return None
        return self._work(request, found)

    def _work(self, request: ManagementRequest, task: Iterator[Response | None]) -> Iterator[None]:
        for found in task:
            if found is not None:
                self._respond(request, found)
            yield

    def _respond(self, request: ManagementRequest, response: Response) -> None:
        responses = self._responses
        if responses is not None:
            after = self.link.session.connection.broker.log.proof_lsn(response.after)
            responses.send(encode(request.ident, response), after)

    # -- the end

    def release(self, *, closed: bool) -> int:
        """Nothing is kept for the link."""
        return 0

    def block(self, *, on: bool) -> None:
        """Do nothing: requests can set memory and disk space free."""

    def forbidden(self) -> bool:
        """Return False: each request is checked."""
        return False

    def describe(self) -> dict[str, object]:
        """Return the link's entry in lists."""
        return {"address": ADDRESS, "credit": self._limit - self._count, "unsettled": 0}


class ResponseLink:
    """The broker's end of the link on which responses leave. All of them are settled."""

    __slots__ = ("_credit", "_frames_left", "_given", "_waiting", "link")

    def __init__(self, link: Link) -> None:
        self.link = link
        self._given = 0  # the delivery-count
        self._credit = 0
        self._waiting: deque[tuple[bytes, int]] = deque()  # messages, with the LSN for which each waits
        self._frames_left: deque[tuple[bytes, int]] = deque()  # of the response that is being sent

    @property
    def waiting(self) -> int:
        """The number of responses for which the client has granted no credit yet."""
        return len(self._waiting)

    @property
    def _requests(self) -> RequestLink | None:
        """The other half of the pair, if it is attached."""
        for link in self.link.session.links.values():
            if link.name == self.link.name and isinstance(link.end, RequestLink):
                return link.end
        return None

    def attached(self) -> None:
        """Let the client send requests, if the other link is attached already."""
        requests = self._requests
        if requests is not None:
            requests.grant()

    def send(self, message: bytes, after: int) -> None:
        """Send a response when there is credit, and when the log is synced up to `after`."""
        self._waiting.append((message, after))
        self.wake()

    def flow(self, flow: Flow) -> None:
        """Set the credit (section 2.6.7)."""
        if flow.link_credit is not None:
            spent = (self._given - (flow.delivery_count or 0)) & MASK
            if spent > MASK >> 1:
                spent -= MASK + 1
            self._credit = max(flow.link_credit - spent, 0)
            self.wake()
            self.attached()
        if flow.drain:
            self._given, self._credit = self._given + self._credit, 0
        if flow.drain or flow.echo:
            self.link.session.send_flow(
                handle=self.link.handle,
                delivery_count=self._given & MASK,
                link_credit=self._credit,
                available=len(self._waiting),
                drain=flow.drain,
            )

    def wake(self) -> None:
        """Send the responses for which there is credit, as far as the client's incoming window has room."""
        session = self.link.session
        while self._frames_left or (self._waiting and self._credit):
            if session.remote_incoming_window <= 0:
                session.starve(self)
                return
            if not self._frames_left:
                self._begin(*self._waiting.popleft())
            data, after = self._frames_left.popleft()
            session.transmitted(1)
            session.connection.put(session.lane, data, after)

    def _begin(self, message: bytes, after: int) -> None:
        """Divide the next response into frames."""
        session = self.link.session
        self._credit -= 1
        self._given += 1
        number = session.next_delivery_id
        session.next_delivery_id = number + 1
        transfer = Transfer(self.link.handle, number & MASK, (number & MASK).to_bytes(4, "big"), 0, True)
        pieces: list[Piece] = []
        divided(transfer, message, session.channel, session.connection.frame_max, pieces)
        for head, part in zip(pieces[::2], pieces[1::2], strict=True):
            self._frames_left.append((bytes(head) + part, after))

    # -- the end

    def release(self, *, closed: bool) -> int:
        """Nothing is kept for the link."""
        self._waiting.clear()
        self._frames_left.clear()
        return 0

    def block(self, *, on: bool) -> None:
        """Do nothing: responses concern no publisher."""

    def forbidden(self) -> bool:
        """Return False: each request is checked."""
        return False

    def describe(self) -> dict[str, object]:
        """Return the link's entry in lists."""
        return {"address": ADDRESS, "credit": self._credit, "unsettled": 0}
