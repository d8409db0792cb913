"""Check that a message keeps its content when compaction copies it, and that snapshots refer to the right copy."""

from __future__ import annotations

import numpy as np

from escrowmq.pipeline.columns import Ints
from escrowmq.pipeline.events import NOWHERE, Events, Happened
from escrowmq.pipeline.findings import Finding
from escrowmq.pipeline.message_columns import MessageColumns
from escrowmq.pipeline.positions import Of, Told


def move(messages: MessageColumns, events: Events, of: Of, start: int) -> None:
    """Record the current block of each message, and report wrong copies and references.

    `start` is the LSN below which history may have been deleted.
    """
    place, rows, nth = of(Happened.MOVED, Happened.HELD_IN_SNAPSHOT)
    if not len(place):
        return
    _check_places(messages, place, rows, nth, start)
    moved = rows["what"] == Happened.MOVED
    _check_copies(messages, events, place[moved], rows[moved], nth[moved])
    # numpy assigns in order, so the last move of a message wins.
    messages["block"][place], messages["index"][place] = rows["block"], rows["index"] + nth


def _check_places(messages: MessageColumns, place: Ints, rows: Told, nth: Ints, start: int) -> None:
    """Check that a snapshot refers to the block that the log named last for a message."""
    side = np.argsort(place, kind="stable")  # groups the events of each message, in the order of the log
    place, rows, index = place[side], rows[side], (rows["index"] + nth)[side]
    block = rows["block"]
    last_block, last_index = messages["block"][place], messages["index"][place]
    again = np.flatnonzero(place[1:] == place[:-1]) + 1
    last_block[again], last_index[again] = block[again - 1], index[again - 1]
    told = (last_block >= start) & (last_block >= 0) & (messages["publish_lsn"][place] < rows["lsn"])
    wrong = told & (rows["what"] == Happened.HELD_IN_SNAPSHOT) & ((block != last_block) | (index != last_index))
    messages.report(place[wrong], Finding.OTHER_CONTENT, rows["lsn"][wrong])


def _check_copies(messages: MessageColumns, events: Events, place: Ints, rows: Told, nth: Ints) -> None:
    """Check that a copy has the original's arrival time, envelope and body, as far as both are known."""
    came = rows["came"]
    wrong = (came == NOWHERE) | ((came != 0) & (messages["came_ms"][place] > 0) & (came != messages["came_ms"][place]))
    told = np.flatnonzero((rows["bodies"] >= 0) & (messages["digest"][place] >= 0))
    copied = events.bodies["digest"][rows["bodies"][told] + nth[told]]
    wrong[told] |= copied != messages["digest"][place[told]]
    messages.report(place[wrong], Finding.OTHER_CONTENT, rows["lsn"][wrong])
