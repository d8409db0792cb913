"""A terminus: the broker's end of a link, which owns the link's unsettled deliveries (SET-12).

A terminus is identified by virtual host, container, link name and role, so it outlives the connection on which its link
is attached. An attached link borrows it (`loan.py`). Without a link it is suspended, until a link resumes it or its
expiry policy ends it. Attaching a link of the same name elsewhere steals the terminus: the old link loses it first.

- The kinds of attaching are inputs: ESTABLISH begins anew, RESUME continues with the unsettled deliveries, RECOVER asks
  for the stored settings.
- DETACH, SESSION_ENDED and CONNECTION_LOST suspend it. They also say how much of the link's surroundings is gone, which
  the expiry policy compares with its condition. They may follow each other while it is suspended.
- CLOSE is the client's own end of the terminus. EXPIRE is the end by timeout, by an operator, or by the deletion of its
  user or virtual host.
"""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.leftover import freed
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.settlement import durable_positions
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.termini import encode_given_back
from escrowmq.core.termini.acquisitions import Acquisitions
from escrowmq.core.termini.arrivals import Arrivals

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.loan import Loan
    from escrowmq.core.termini.registry import Termini


class LinkRole(StrEnum):
    """The direction of a link, as the broker sees it."""

    INCOMING = "incoming"
    """The broker receives messages from a producer."""
    OUTGOING = "outgoing"
    """The broker sends messages to a consumer."""


class Durability(IntEnum):
    """The part of a terminus that survives a restart of the broker."""

    NONE = 0
    CONFIGURATION = 1
    """The terminus, without its unsettled deliveries."""
    UNSETTLED_STATE = 2
    """The terminus, with the unsettled deliveries of durable messages."""


class ExpiryPolicy(StrEnum):
    """The condition that starts the timeout of a terminus."""

    LINK_DETACH = "link-detach"
    SESSION_END = "session-end"
    CONNECTION_CLOSE = "connection-close"
    NEVER = "never"


class TerminusKey(NamedTuple):
    """The identity of a terminus. `container` is the id of the client's container."""

    vhost: str
    container: str
    link: str
    role: LinkRole


class TerminusSettings(NamedTuple):
    """The settings that were granted to a link.

    `second`: the receiver settles second. `address` and `data` describe source and target to the protocol, which needs
    them when a client recovers the terminus. `default` is the outcome of deliveries that are unsettled at the end of an
    outgoing terminus.
    """

    durability: Durability = Durability.NONE
    policy: ExpiryPolicy = ExpiryPolicy.SESSION_END
    timeout_ms: int = 0
    second: bool = False
    address: str = ""
    data: bytes = b""
    default: Disposition = Disposition.MODIFIED


class TerminusState(Enum):
    """The state of a terminus."""

    ATTACHED = auto()
    SUSPENDED = auto()
    GONE = auto()


class TerminusInput(Enum):
    """The inputs of a terminus's state machine."""

    ESTABLISH = auto()
    RESUME = auto()
    RECOVER = auto()
    STEAL = auto()
    DETACH = auto()
    CLOSE = auto()
    CONNECTION_LOST = auto()
    SESSION_ENDED = auto()
    EXPIRE = auto()


# A missing cell is an illegal-state error. Every cell is tested (tests/unit/core/termini/test_terminus.py).
TRANSITIONS: Final[dict[TerminusState, dict[TerminusInput, TerminusState]]] = {
    TerminusState.GONE: {
        TerminusInput.ESTABLISH: TerminusState.ATTACHED,
        TerminusInput.RESUME: TerminusState.ATTACHED,
    },
    TerminusState.ATTACHED: {
        TerminusInput.STEAL: TerminusState.SUSPENDED,  # the link that steals it attaches in the same step
        TerminusInput.DETACH: TerminusState.SUSPENDED,
        TerminusInput.CLOSE: TerminusState.GONE,
        TerminusInput.CONNECTION_LOST: TerminusState.SUSPENDED,
        TerminusInput.SESSION_ENDED: TerminusState.SUSPENDED,
        TerminusInput.EXPIRE: TerminusState.GONE,
    },
    TerminusState.SUSPENDED: {
        TerminusInput.ESTABLISH: TerminusState.ATTACHED,
        TerminusInput.RESUME: TerminusState.ATTACHED,
        TerminusInput.RECOVER: TerminusState.ATTACHED,
        TerminusInput.CONNECTION_LOST: TerminusState.SUSPENDED,
        TerminusInput.SESSION_ENDED: TerminusState.SUSPENDED,
        TerminusInput.EXPIRE: TerminusState.GONE,
    },
}

EXPIRES_AFTER: Final[dict[ExpiryPolicy, frozenset[TerminusInput]]] = {
    ExpiryPolicy.LINK_DETACH: frozenset(
        (TerminusInput.DETACH, TerminusInput.SESSION_ENDED, TerminusInput.CONNECTION_LOST)
    ),
    ExpiryPolicy.SESSION_END: frozenset((TerminusInput.SESSION_ENDED, TerminusInput.CONNECTION_LOST)),
    ExpiryPolicy.CONNECTION_CLOSE: frozenset((TerminusInput.CONNECTION_LOST,)),
    ExpiryPolicy.NEVER: frozenset(),
}
"""The inputs that start the timeout, by policy."""


class Terminus:
    """The broker's end of a link. `number` identifies it in the log; 0 if it does not survive a restart.

    `arrivals` has the unsettled deliveries of an incoming terminus, `deliveries` those of an outgoing one. `loan` is
    the latest loan to a link. `since` is the time of the last attach or suspension, in milliseconds; `unsettled_since`
    is the time since which there has been at least one unsettled delivery.
    """

    __slots__ = (
        "__weakref__",
        "_engine",
        "arrivals",
        "deadline",
        "deliveries",
        "key",
        "loan",
        "number",
        "settings",
        "since",
        "state",
        "termini",
        "unsettled_since",
        "user",
    )

    concerns = None  # only its owner and administrators have a right on it (`access.owned`)

    def __init__(
        self, engine: Engine, key: TerminusKey, settings: TerminusSettings, user: str, number: int = 0
    ) -> None:
        self._engine = engine
        self.key = key
        self.settings = settings
        self.user = user
        self.number = number
        self.state = TerminusState.GONE
        self.since = self.unsettled_since = engine.now
        self.loan: Loan | None = None
        self.termini: Termini | None = None  # while it is one of them
        self.deadline: Deadline | None = None
        self.arrivals = Arrivals()
        self.deliveries = Acquisitions(engine, self)

    def __repr__(self) -> str:
        return f"<Terminus {self.key.vhost}:{self.key.container}:{self.key.link}:{self.key.role.value}>"

    @property
    def title(self) -> str:
        """The terminus's name for error texts."""
        return f"link '{self.key.link}' of container '{self.key.container}'"

    @property
    def keeps(self) -> bool:
        """Whether unsettled deliveries are in the log: the terminus is durable, and its receiver settles second."""
        return self.number > 0 and self.settings.second and self.settings.durability is Durability.UNSETTLED_STATE

    @property
    def idle(self) -> bool:
        """Whether nothing unsettled would survive a restart."""
        return self.arrivals.empty and self.deliveries.empty

    def free_later(self, objects: list[Any]) -> None:
        """Free the memory of many objects in later turns. The list belongs to the engine from now on."""
        self._engine.left_over.add(freed(objects))

    @property
    def unsettled(self) -> int:
        """The number of unsettled deliveries."""
        return self.arrivals.count + self.deliveries.count

    def given_back(self, queue: Queue, entries: list[Entry]) -> None:
        """Record that deliveries return to their queue, so that a restart does not lock them (`ports.Acquirer`)."""
        if self.keeps:
            positions = durable_positions(queue, entries)
            if positions:
                if self._engine.deliveries is not None:  # the audit sees the deliveries before their return
                    self._engine.deliveries.flush()
                record = encode_given_back(self.number, queue.ident, ranges_of(positions))
                self._engine.log.append(Kind.GIVEN_BACK, record)

    @property
    def owner(self) -> tuple[str, object]:
        """The user and the client's container."""
        return self.user, self.key.container

    @property
    def incomplete_bytes(self) -> int:
        """The bytes of a delivery to the broker that was interrupted."""
        partial = self.arrivals.partial
        return 0 if partial is None else len(partial.payload)

    def relieve(self, text: str) -> None:
        """Free the memory of the deliveries, because memory is short."""
        if self.termini is not None:
            self.termini.relieve(self, text)

    def step(self, given: TerminusInput) -> TerminusState:
        """Take the transition that the table names for `given`. Raises ILLEGAL_STATE for a missing cell."""
        after = TRANSITIONS[self.state].get(given)
        if after is None:
            raise BrokerError(
                Condition.ILLEGAL_STATE,
                f"{self.title} in vhost '{self.key.vhost}' is {self.state.name.lower()}; it has no transition for "
                f"'{given.name.lower().replace('_', ' ')}'",
            )
        self.state = after
        return after
