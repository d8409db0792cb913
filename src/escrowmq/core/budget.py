"""The work that one turn may do for requests and for queues, so that no turn makes other clients wait for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry

TURN: Final = 700
SHARE: Final = 20
"""The least that each client may use, even if others have used up the turn's budget before it."""
QUEUE: Final = 3  # a visit to a queue, including the records that it causes
EXAMINED: Final = 8  # a message that a consumer's selector decided on, or that was shown to a browser
STREAMED: Final = 2  # messages of a stream, which are sent with their offsets, that cost one more unit
LOAD: Final = 3  # one block loaded from the log
LOADED_BYTES: Final = 16 * 1024  # bytes of a loaded block that cost one unit
SENT_BYTES: Final = 16 * 1024  # bytes of deliveries that do
METHOD: Final = 10  # a request, such as a declaration or a subscription
FRAME: Final = 1  # a heartbeat, or a frame of a message that is read frame by frame
GETS: Final = 2  # messages that a client asks for one by one that cost one unit
COMMIT: Final = 2  # the commit of a small transaction, apart from its work
PUBLISH: Final = 2  # a run of messages; each queue that it is routed to costs 1 more
COPIES: Final = 12  # messages of a run that cost one more unit for each of its queues
ROUTED: Final = 16  # queues that a routing key leads to that cost one unit when it is new
HEADERS: Final = 6  # decoding a message's headers for its route
STEPS: Final = 40  # bindings and exchanges visited on a route that cost one unit
SETTLED_APART: Final = 4  # deliveries acknowledged one by one that cost one unit
SETTLED: Final = 4  # deliveries acknowledged together that cost one unit, when each is in a run of its own
RETURNED: Final = 2  # deliveries returned or sent again together that cost one unit
RESENT: Final = 16  # a delivery that a resumed link sends again
ADOPTED: Final = 8  # a delivery that is settled because a resumed link names its outcome
DEAD_LETTERED: Final = 10  # a rejected delivery, which may go to another queue
CANCELLED: Final = 1  # a consumer that is detached from its queue, and perhaps told so
CHANNEL: Final = 4  # a channel that returns all that it holds, apart from its consumers
LINK: Final = 4  # a link that is detached because its session ends, or a terminus that ends with its owner
DECLARED: Final = 8  # a stream that is made for a topic
DEADLINE: Final = 5  # a deadline that is due, apart from the work that its action counts itself
IN_DOUBT: Final = 2  # branches in doubt that are reported together that cost one unit
DELETED: Final = 4  # a queue that is deleted, apart from its messages, bindings and consumers
_HANDOVER: Final = 1
_ALIKE: Final = 4


class Budget:
    """The work that is left in this turn, in units of about 4 microseconds.

    The budget counts work and reads no clock, so that the same calls always divide into the same turns. Delivering and
    settling an entry costs 1, or a quarter of that for an entry within a longer part of its run. The last piece of a
    turn may overdraw the budget.

    Each turn begins with `turn` units. `outpaced` tells whether a queue had many messages for which its consumers had
    no room, in the last turn that delivered anything.
    """

    __slots__ = ("left", "outpaced", "turn")

    def __init__(self) -> None:
        self.left = self.turn = TURN
        self.outpaced = False

    def renew(self) -> None:
        """Start the budget of the next turn."""
        self.left = self.turn

    def admit(self) -> None:
        """Let a client work that is served after others: at least its share is left."""
        share = min(SHARE, self.turn >> 3)
        self.left = max(self.left, share)

    def charge(self, entries: list[Entry], consumers: int = 1) -> None:
        """Charge `entries`, at least one, that were delivered to this number of consumers. The two in the middle show
        whether runs are long, and how large messages are.
        """
        size = len(entries)
        middle = size >> 1
        entry = entries[middle]
        cost = size // _ALIKE if entry.run is entries[middle - 1].run else size
        self.left -= _HANDOVER * consumers + cost + size * len(entry.content) // SENT_BYTES
