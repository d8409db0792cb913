"""The lists of queues and connections that this process keeps, in the form of RabbitMQ's management API.

A monitoring system asks for the same long lists every few seconds, and little has changed in between. The process
therefore asks the broker for the changes only (`admin.changes`), and keeps the answer of each row as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from escrowmq.admin.connections import connection_row
from escrowmq.admin.http import shapes
from escrowmq.admin.http.answers import encoded
from escrowmq.admin.http.broker import AskedBroker
from escrowmq.admin.operation import Row
from escrowmq.admin.queue_rows import queue_row

Shape = dict[str, Any]
_BLOCK: Final = 100
"""Rows that are encoded before other requests get their turn, and whose JSON is kept as one piece."""


class RowForms(NamedTuple):
    """How the rows of a list are made of their parts, and how they are shown in RabbitMQ's form."""

    row: Callable[[Mapping[str, Any], Sequence[Any]], Row]
    shape: Callable[[Row, str], Shape]


class KeptRow:
    """A row of a list. `fixed` is the part of it that never changes, and `variable` the other part."""

    __slots__ = ("_encoded", "_forms", "_node", "fixed", "variable")

    def __init__(self, forms: RowForms, fixed: Mapping[str, Any], variable: Sequence[Any]) -> None:
        self._forms = forms
        self.fixed = fixed
        self.variable = variable
        self._node = ""
        self._encoded = b""

    def row(self) -> Row:
        """Return the row as the admin service has it."""
        return self._forms.row(self.fixed, self.variable)

    def shape(self, node: str) -> Shape:
        """Return the row for an answer; `node` is the name of the broker."""
        return self._forms.shape(self.row(), node)

    def encoded(self, node: str) -> bytes:
        """Return the row in JSON."""
        if not self._encoded or self._node != node:
            self._node, self._encoded = node, encoded(self.shape(node))
        return self._encoded


class JoinedRows:
    """Joins rows in JSON. Blocks of rows that are the same as in the previous answer are not joined again."""

    def __init__(self) -> None:
        self._node = ""
        self._blocks: list[tuple[Sequence[KeptRow], bytes]] = []

    async def joined(self, rows: Sequence[KeptRow], node: str) -> bytes:
        """Return a list of rows in JSON. A row that has changed is another object."""
        before = self._blocks if node == self._node else []
        blocks: list[tuple[Sequence[KeptRow], bytes]] = []
        for number, begin in enumerate(range(0, len(rows), _BLOCK)):
            some = rows[begin : begin + _BLOCK]
            if number < len(before) and before[number][0] == some:
                blocks.append(before[number])
            else:
                blocks.append((some, b",".join([row.encoded(node) for row in some])))
                await asyncio.sleep(0)
        self._node, self._blocks = node, blocks
        parts = [b"["]
        for _, text in blocks:
            parts += text, b","
        return b"".join([*parts[: max(len(parts) - 1, 1)], b"]"])  # without another copy of megabytes


class KeptList:
    """A list whose changes the broker tells by an operation."""

    def __init__(self, broker: AskedBroker, operation: str, forms: RowForms) -> None:
        self._broker = broker
        self._operation = operation
        self._forms = forms
        self._run, self._look = "", 0
        self._rows: dict[int, KeptRow] = {}
        self.answers = JoinedRows()
        self._asking = asyncio.Lock()
        self._asked = self._answered = 0

    async def current(self) -> list[KeptRow]:
        """Return the rows as they are now, in the order in which their objects were made. Several requests that wait at
        the same time share one question to the broker. Raises BrokerUnavailable, BrokerRefused.
        """
        wanted = self._asked + 1  # the broker has been asked before for those that are under way
        async with self._asking:
            if self._answered < wanted:
                self._asked += 1
                self._apply(await self._broker.ask(self._operation, run=self._run, look=self._look))
                self._answered = self._asked
            return list(self._rows.values())

    def _apply(self, answer: Sequence[Mapping[str, Any]]) -> None:
        head, *changes = answer
        self._run = ""  # so that the whole list comes next if this one cannot be understood
        if head["whole"]:
            self._rows = {}
        new = False
        for row in changes:
            for ident in row.get("gone", ()):
                self._rows.pop(ident, None)
            if "ident" in row:
                ident = row["ident"]
                new = new or ident not in self._rows
                fixed = row["fixed"] if "fixed" in row else self._rows[ident].fixed
                self._rows[ident] = KeptRow(self._forms, fixed, row["variable"])
        if new:
            self._rows = dict(sorted(self._rows.items()))
        self._run, self._look = head["run"], head["look"]


class KeptLists:
    """The lists of one broker that are kept."""

    def __init__(self, broker: AskedBroker) -> None:
        self.queues = KeptList(broker, "queue.changes", RowForms(partial(queue_row, counters=True), shapes.queue))
        self.connections = KeptList(broker, "connection.changes", RowForms(connection_row, shapes.connection))
