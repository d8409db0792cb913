"""How long the oldest unsettled delivery of a channel or session has been waiting, to about a second.

Deliveries carry no time, because that would cost something for each message. Instead, the next delivery tag is noted
about once a second. A delivery was there at the first of these moments at which a higher tag was next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from escrowmq.core.queues.unsettled import Unsettled

MOST: Final = 64
"""Moments that are kept. When there are more, every second one is dropped, which makes the age less exact."""


class DeliveryAges:
    """The moments of one channel or session at which deliveries were unsettled."""

    __slots__ = ("_moments",)

    def __init__(self) -> None:
        self._moments: list[tuple[int, int]] = []  # the next tag and the time, oldest first

    def note(self, now_ms: int, unsettled: Unsettled) -> None:
        """Note which deliveries there are. Called about once a second."""
        moments = self._moments
        if not unsettled.count:
            moments.clear()
            return
        self._forget(unsettled)
        if not moments or moments[-1][0] != unsettled.next_tag:
            moments.append((unsettled.next_tag, now_ms))
            if len(moments) > MOST:
                del moments[1::2]

    def age_ms(self, now_ms: int, unsettled: Unsettled) -> int | None:
        """Return the age of the oldest unsettled delivery; None if there is none."""
        if not unsettled.count:
            return None
        self._forget(unsettled)
        return max(now_ms - self._moments[0][1], 0) if self._moments else 0

    def _forget(self, unsettled: Unsettled) -> None:
        """Drop the moments at which none of the present deliveries had been made."""
        first, moments = unsettled.first_tag, self._moments
        past = 0
        while past < len(moments) and moments[past][0] <= first:
            past += 1
        del moments[:past]
