"""The first pass of a run over the log: checksums, times, and the records about names.

It notes in the state what later runs need to know as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline import group_facts, tasks, unsettled
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.names import TOLD
from escrowmq.pipeline.store import Queue, State


class LogScan:
    """What the scan has found, from the rows of `tasks.Scan`."""

    def __init__(self, state: State) -> None:
        """`state` is that of the last run, which is continued."""
        self._state = state
        self.records = 0
        """The number of records in the log."""
        self.last_time = state.last_time
        """The time of the last record in microseconds."""
        self.broken: list[tuple[str, int, str]] = []
        """Damaged places: file, LSN and reason."""
        self.named: list[tuple[int, int, int, bytes]] = []
        """The records about names: the snapshot that contains them, LSN, kind and payload."""
        self.noted = (-1, bytes.fromhex(state.removed))
        """The LSN and the payload of the newest record of removed segments."""
        self.handed = {ident: [queue.handed] for ident, queue in state.queues.items() if queue.handed[0]}
        """For each queue the positions below which messages may have been handed out, as in `store.Queue`."""

    def take(self, rows: Iterable[Any]) -> None:
        """Take all rows of the scan."""
        times: list[tuple[int, int, int]] = []
        for row in rows:
            if row.kind == 0:
                if row.snapshot < 0:
                    self.records += row.number
                    self.last_time = max(self.last_time, row.time)
                    times.append((row.lsn, 1, row.time))
                if row.payload:
                    self.broken.append((row.file, row.lsn, bytes(row.payload).decode()))
            elif row.kind == tasks.BEGINS:
                times.append((row.lsn, 0, row.time))
            elif row.kind == tasks.SET_BACK:
                self._state.set_back.append(row.lsn)
            else:
                self._changed(row)
        times.sort()
        self._state.set_back += [
            now[0] for past, now in pairwise(times) if not now[1] and now[2] + tasks.SET_BACK_US < past[2]
        ]

    def _changed(self, row: Any) -> None:
        state = self._state
        queues = state.queues
        if row.kind in TOLD:
            self.named.append((row.snapshot, row.lsn, row.kind, bytes(row.payload)))
        if row.kind == Kind.REMOVED and row.snapshot < 0:
            self.noted = max(self.noted, (row.lsn, bytes(row.payload)))
        if row.kind == Kind.DELIVERED:
            said = (row.time, row.lsn, row.frame)
            self.handed.setdefault(row.number, []).append(said)
            queue = queues.get(row.number)
            if queue is not None and row.time > queue.handed[0]:
                queue.handed = said
        elif row.kind == Kind.ACQUIRED:
            state.acquired = sorted({*state.acquired, row.number})
        elif row.kind == Kind.TERMINUS_SET:
            fields = decode_change(bytes(row.payload))
            known = state.termini.get(str(fields["number"]), ["", 0])  # a snapshot may be older than its deletion
            state.termini[str(fields["number"])] = [unsettled.title(fields), known[1]]
            unsettled.note_durable(state.durable_links, fields, row.lsn)
        elif row.kind == Kind.TERMINUS_DELETED:
            number = str(decode_change(bytes(row.payload))["number"])
            state.termini[number] = [state.termini.get(number, [""])[0], row.lsn]
        elif row.kind in (Kind.GROUP_SET, Kind.GROUP_DELETED):
            lsn = row.snapshot if row.snapshot >= 0 else row.lsn
            group_facts.note(state.consumer_groups, decode_change(bytes(row.payload)), lsn)
        elif row.kind in (Kind.QUEUE_DECLARED, Kind.QUEUE_DELETED):
            fields = decode_change(bytes(row.payload))
            unknown = Queue(plain(fields["vhost"]), plain(fields["name"]), declared=False)
            queue = queues.setdefault(fields["id"], unknown)
            if row.kind == Kind.QUEUE_DELETED:
                queue.deleted = (row.lsn, row.frame, row.time)
            elif not queue.declared:
                queue.declared, queue.arguments = True, json.loads(json.dumps(fields["arguments"], default=str))
                queue.since = row.snapshot if row.snapshot >= 0 else row.lsn
                queue.logged = row.snapshot < 0
