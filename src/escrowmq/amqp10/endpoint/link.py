"""The part that sending and receiving links share: names, handles, attach and detach.

A link outlives its connection. `Endpoint` attaches it again on the next one, unless it was closed or has failed:

    state       attach received      detach received          detach sent   connection or session lost
    DETACHED    –                    –                        GONE          DETACHED
    ATTACHING   ATTACHED, REFUSED    GONE                     DETACHING     DETACHED
    REFUSED     –                    GONE                     DETACHING     DETACHED
    ATTACHED    –                    GONE                     DETACHING     DETACHED
    DETACHING   DETACHING            GONE, or DETACHED again  –             GONE, or DETACHED again

"again" is a link that is suspended to reduce an incomplete map of unsettled deliveries, and then attaches once more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from escrowmq.amqp10.endpoint.events import LinkAttached, LinkGone
from escrowmq.amqp10.errors import AmqpError, LinkFailed, link_error
from escrowmq.amqp10.nodes import LinkOptions
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import Attach, Detach, Error, Flow, Transfer, encode_performative
from escrowmq.wire.amqp10.codec.types import Symbol

if TYPE_CHECKING:
    from escrowmq.amqp10.endpoint.session import SessionEndpoint

_FRAME_HEADER: Final = 8
_SPARE: Final = 24  # bytes for the head of the map


class LinkState(Enum):
    """The states of the table in this module's docstring."""

    DETACHED = "detached"
    ATTACHING = "attaching"
    REFUSED = "refused"
    ATTACHED = "attached"
    DETACHING = "detaching"
    GONE = "gone"


class LinkEnd(ABC):
    """One end of a link. `remote` is the peer's attach, which says what it has granted."""

    role: bool

    def __init__(self, session: SessionEndpoint, name: str, options: LinkOptions, handle: int) -> None:
        self.session = session
        self.name = name
        self.options = options
        self.handle = handle
        self.state = LinkState.DETACHED
        self.remote: Attach | None = None
        self.error: AmqpError | None = None
        self.credit = 0
        self.delivery_count = 0
        self.attaches = 0
        """How often the link has begun to attach: a transaction does not survive a change."""
        self._again = False  # whether the link attaches again after the detach that is under way
        self.offered: frozenset[bytes] = frozenset()
        """The tags in this side's map of unsettled deliveries, as it was last sent."""
        self._incomplete = False  # whether this side's map of unsettled deliveries did not fit into the attach

    def __str__(self) -> str:
        return f"link {self.name} ({self.options.address or 'no address'})"

    @property
    def attached(self) -> bool:
        """Whether transfers may be exchanged."""
        return self.state is LinkState.ATTACHED

    @property
    def gone(self) -> bool:
        """Whether the link has ended for good."""
        return self.state is LinkState.GONE

    @property
    def max_message_size(self) -> int:
        """The size (bytes) of the largest message that the peer accepts; 0 if it named none."""
        return 0 if self.remote is None else int(self.remote.max_message_size or 0)

    def check(self) -> bool:
        """Return True. Raises the error with which the link ended, if it did."""
        if self.error is not None:
            raise self.error.again()
        if self.gone:
            raise LinkFailed(f"{self} is closed; attach a new one")
        return True

    # -- what the kinds of link differ in

    @abstractmethod
    def _termini(self) -> dict[str, Any]:
        """Return source, target and initial delivery-count of the attach."""

    @abstractmethod
    def _unsettled_map(self) -> dict[bytes, Any]:
        """Return the local states of the deliveries that can be resumed."""

    @abstractmethod
    def _on_attached(self, remote: Attach) -> None:
        """Compare the maps of unsettled deliveries, and go on."""

    @abstractmethod
    def on_flow(self, flow: Flow) -> None:
        """Take a flow of the peer for this link."""

    @abstractmethod
    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take a transfer of the peer."""

    @abstractmethod
    def _suspend(self, why: str) -> None:
        """Prepare the deliveries for another attach, or give them up."""

    @abstractmethod
    def _fail(self, why: str) -> None:
        """Give up all deliveries: the link is gone."""

    # -- attach

    def attach(self) -> None:
        """Send attach."""
        self.state = LinkState.ATTACHING
        self.attaches += 1
        snd, rcv = self.options.settle_modes
        attach = Attach(
            name=self.name,
            handle=self.handle,
            role=self.role,
            snd_settle_mode=snd,
            rcv_settle_mode=rcv,
            properties={Symbol(key): value for key, value in self.options.properties.items()} or None,
            **self._termini(),
        )
        self._incomplete = False
        if self.options.terminus.resumable:
            attach.unsettled = self._fitting(len(encode_performative(attach)))
            attach.incomplete_unsettled = self._incomplete
        self.session.send(encode_performative(attach))

    def _fitting(self, base: int) -> dict[bytes, Any]:
        """Return as much of the map of unsettled deliveries as fits into one frame."""
        room = self.session.max_frame_size - _FRAME_HEADER - base - _SPARE
        fitting: dict[bytes, Any] = {}
        for tag, state in self._unsettled_map().items():
            room -= len(tag) + 2 + (1 if state is None else len(encode_composite(state)))
            if room < 0:
                self._incomplete = True
                break
            fitting[tag] = state
        self.offered = frozenset(fitting)
        return fitting

    def on_attach(self, remote: Attach) -> None:
        """Take the peer's attach."""
        self.remote = remote
        if self.state is LinkState.DETACHING:
            return
        if (remote.source if self.role else remote.target) is None:
            self.state = LinkState.REFUSED
            return
        self.state = LinkState.ATTACHED
        self.session.event(LinkAttached(self, bool(remote.unsettled)))
        self._on_attached(remote)

    # -- detach

    def detach(self, *, closed: bool, error: Error | None = None) -> None:
        """Send detach. `closed` also destroys the terminus at the peer."""
        if self.state in (LinkState.ATTACHING, LinkState.REFUSED, LinkState.ATTACHED):
            self.state = LinkState.DETACHING
            self.session.send(encode_performative(Detach(handle=self.handle, closed=closed, error=error)))
        elif self.state is LinkState.DETACHED:
            self._end(None)

    def suspend_and_attach_again(self) -> None:
        """Detach without closing, and attach again with the rest of the unsettled deliveries."""
        self._again = True
        self.detach(closed=False)

    def on_detach(self, detach: Detach) -> None:
        """Take the peer's detach, and answer it."""
        if self.state is LinkState.DETACHING:
            if self._again and detach.error is None:
                self._again = False
                self._suspend("the link is attached again")
                self.attach()
                return
        else:
            self.session.send(encode_performative(Detach(handle=self.handle, closed=detach.closed)))
        asked = self.state is LinkState.DETACHING and detach.error is None
        self._end(None if asked else link_error(str(self), detach.error, "the peer detached the link without a reason"))

    def lost(self, why: str, *, final: bool) -> None:
        """The session or the connection is gone; `final` if there will be no other one."""
        if self.state is LinkState.GONE:
            return
        if final or (self.state is LinkState.DETACHING and not self._again):
            self._end(LinkFailed(f"{self}: {why}") if final else None)
            return
        self._again = False
        self.state = LinkState.DETACHED
        self._suspend(why)

    def fail(self, error: AmqpError) -> None:
        """End the link because of an error on this side."""
        self.error = error
        condition = Symbol(error.condition or "amqp:internal-error")
        self.detach(closed=True, error=Error(condition=condition, description=str(error)))

    def _end(self, error: AmqpError | None) -> None:
        self.state = LinkState.GONE
        self.error = self.error or error
        self._fail(str(self.error or f"{self} was closed"))
        self.session.forget(self)
        self.session.event(LinkGone(self, self.error))
