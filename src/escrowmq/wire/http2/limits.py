"""The limits of an HTTP/2 connection, and the bound on frames that cost work without carrying a request (FAIR-3).

A client may send PING, SETTINGS, PRIORITY, RST_STREAM, empty DATA and CONTINUATION frames as it likes, and each costs
the server work. Known attacks are floods of one of them; "rapid reset" opens streams and resets them at once.
`Patience` bounds all of them alike: each such frame takes from a stock, and answered requests, sent data and time
refill it. The connection of a client that uses the stock up is closed with ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from escrowmq.wire.http2.frames import ErrorCode, Http2Fault


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """Sizes are in bytes."""

    streams: int = 512
    header_list: int = 16_384
    header_block: int = 32_768
    stream_window: int = 1 << 20
    connection_window: int = 16 << 20
    unsent: int = 64 << 20  # that wait for the client's flow-control windows
    patience: int = 2000


RESET: Final = 10
SETTINGS: Final = 10
SMALL: Final = 1
_ANSWERED: Final = 12  # more than a reset, because clients cancel a long poll after its answer
_SENT: Final = 2  # clients probe the bandwidth with a PING, and update windows, for data that they get
_EACH_SECOND: Final = 200


class Patience:
    """The stock of one connection."""

    __slots__ = ("_left", "_most")

    def __init__(self, most: int) -> None:
        self._left = self._most = most

    def spend(self, cost: int) -> None:
        """Take `cost` from the stock. Raises Http2Fault if that is not enough."""
        self._left -= cost
        if self._left < 0:
            raise Http2Fault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry no request")

    def answered(self) -> None:
        """A request was answered."""
        self._give(_ANSWERED)

    def sent(self) -> None:
        """The client was sent data."""
        self._give(_SENT)

    def tick(self) -> None:
        """A second has passed."""
        self._give(_EACH_SECOND)

    def _give(self, amount: int) -> None:
        self._left = min(self._most, self._left + amount)
