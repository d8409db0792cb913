"""Whether a message keeps its content: compaction copies it, and snapshots say where it lies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from escrowmq.pipeline.columns import Ints, Rows
from escrowmq.pipeline.events import NOWHERE, Events, Happened
from escrowmq.pipeline.findings import Finding
from escrowmq.pipeline.slots import Slots

Of = Callable[..., "tuple[Ints, Rows, Ints]"]


def move(slots: Slots, events: Events, of: Of, start: int) -> None:
    """Where messages lie now. `start`: below it, history may be gone."""
    place, rows, nth = of(Happened.MOVED, Happened.HELD_IN_SNAPSHOT)
    if not len(place):
        return
    _check_places(slots, place, rows, nth, start)
    moved = rows["what"] == Happened.MOVED
    _check_copies(slots, events, place[moved], rows[moved], nth[moved])
    # Of several, the last one counts: assignments are made in order.
    slots["block"][place], slots["index"][place] = rows["block"], rows["index"] + nth


def _check_places(slots: Slots, place: Ints, rows: Rows, nth: Ints, start: int) -> None:
    """A snapshot looks for a message where the log has put it last."""
    side = np.argsort(place, kind="stable")  # what is said of a message side by side, in order
    place, rows, index = place[side], rows[side], (rows["index"] + nth)[side]
    block = rows["block"]
    last_block, last_index = slots["block"][place], slots["index"][place]
    again = np.flatnonzero(place[1:] == place[:-1]) + 1
    last_block[again], last_index[again] = block[again - 1], index[again - 1]
    told = (last_block >= start) & (last_block >= 0) & (slots["publish_lsn"][place] < rows["lsn"])
    wrong = told & (rows["what"] == Happened.HELD_IN_SNAPSHOT) & ((block != last_block) | (index != last_index))
    slots.report(place[wrong], Finding.OTHER_CONTENT, rows["lsn"][wrong])


def _check_copies(slots: Slots, events: Events, place: Ints, rows: Rows, nth: Ints) -> None:
    """A copy came when the original did, and has its envelope and body, as far as both are known."""
    came = rows["came"]
    wrong = (came == NOWHERE) | ((came != 0) & (slots["came_ms"][place] > 0) & (came != slots["came_ms"][place]))
    told = np.flatnonzero((rows["bodies"] >= 0) & (slots["digest"][place] >= 0))
    copied = events.bodies["digest"][rows["bodies"][told] + nth[told]]
    wrong[told] |= copied != slots["digest"][place[told]]
    slots.report(place[wrong], Finding.OTHER_CONTENT, rows["lsn"][wrong])
