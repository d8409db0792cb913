"""Operations on consumer groups: list, show and create them, reset their progress, and delete them."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.admin.operation import Listing, NothingFound, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.groups.cursor import Cursor
from escrowmq.core.groups.group import Group
from escrowmq.core.groups.options import GroupOptions
from escrowmq.core.queues.stream import StreamQueue


class GroupAdmin:
    """The operations by name are in `operations`. They raise OperationRefused or BrokerError."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "group.list": self.list_groups,
            "group.show": self.show,
            "group.create": self.create,
            "group.reset": self.reset,
            "group.delete": self.delete,
        }

    async def list_groups(self) -> Listing:
        """Return every group."""
        return Listing(self._pieces, map(_row, list(self._broker.groups.every())))

    async def show(self, vhost: str, name: str) -> list[Row]:
        """Return the progress of a group in each stream that it has consumed, in offsets."""
        group = self._found(vhost, name)
        return [self._progress(group, cursor) for cursor in group.cursors.values()]

    async def create(
        self,
        vhost: str,
        name: str,
        dead_letter_topic: str | None = None,
        *,
        fifo: bool | None = None,
        attempts: int | None = None,
    ) -> Row:
        """Create a group, or change its settings. None keeps a setting of a group that exists; a new group gets the
        default. The dead-letter topic is created if it does not exist.
        """
        directory = self._broker.directory
        existing = self._broker.groups.find(vhost, name)
        options = GroupOptions(dead_letter_topic=f"%DLQ%{name}") if existing is None else existing.options
        options = GroupOptions(
            fifo=options.fifo if fifo is None else fifo,
            max_attempts=options.max_attempts if attempts is None else attempts,
            back_off_ms=options.back_off_ms,
            dead_letter_topic=options.dead_letter_topic if dead_letter_topic is None else dead_letter_topic,
        )
        options.check(name)
        dead_letters = options.dead_letter_topic

        def declare() -> None:
            host = directory.vhost(vhost)
            if dead_letters and self._broker.topics.find(host, dead_letters) is None:
                self._broker.topics.declare(host, dead_letters, 1, "mixed")
            self._broker.groups.declare(vhost, name, options)

        await self._process.durably(declare)
        return _row(self._found(vhost, name))

    async def reset(
        self, vhost: str, name: str, topic: str, to: str, partition: int | None = None, *, dry_run: bool = False
    ) -> Row:
        """Set the progress of a group in a topic, or in one of its partitions. `to` is `first`, `next`, an offset, or a
        time in milliseconds since the epoch after an `@`. Return the number of `streams`, and how many of them the
        group has not consumed so far (`new`). With `dry_run`, everything is checked and nothing is changed.
        """
        group = self._found(vhost, name)
        found = self._broker.topics.find(self._broker.directory.vhost(vhost), topic)
        if found is None:
            raise OperationRefused(
                f"no topic '{topic}' in vhost '{vhost}'; `escrowmq topic list` shows those that exist"
            )
        if partition is not None and not 0 <= partition < len(found.streams):
            raise OperationRefused(f"topic '{topic}' has no partition {partition}, but {len(found.streams)} partitions")
        streams = found.streams if partition is None else [found.streams[partition]]
        positions = [(stream, _position(stream, to)) for stream in streams]
        new = sum([group.progress(stream) is None for stream in streams])
        if not dry_run:
            await self._process.durably(lambda: [group.reset(stream, position) for stream, position in positions])
        return {"streams": len(streams), "new": new}

    async def delete(self, vhost: str, name: str) -> None:
        """Delete a group with its progress."""
        group = self._found(vhost, name)
        await self._process.durably(lambda: self._broker.groups.delete(group))

    def _found(self, vhost: str, name: str) -> Group:
        group = self._broker.groups.find(vhost, name)
        if group is None:
            raise NothingFound(
                f"no consumer group '{name}' in vhost '{vhost}'; `escrowmq group list` shows those that exist"
            )
        return group

    def _progress(self, group: Group, cursor: Cursor) -> Row:
        stream, now = cursor.stream, self._broker.engine.now
        lock = group.locks.get(stream.ident)
        return {
            "queue": stream.name,
            "offset": cursor.floor - 1,
            "next_offset": stream.end - 1,
            "lag": _lag(cursor),
            "leased": sum([out.generation != 0 and out.due > now for out in cursor.out.values()]),
            "locked_by": lock.owner if lock is not None and lock.until > now else None,
        }


def _row(group: Group) -> Row:
    options = group.options
    return {
        "vhost": group.vhost,
        "name": group.name,
        "user": group.user,
        "fifo": options.fifo,
        "max_attempts": options.max_attempts,
        "dead_letters": options.dead_letter_topic or None,
        "streams": len(group.cursors),
        "lag": sum([_lag(cursor) for cursor in group.cursors.values()]),
        "unsettled": group.outstanding,
    }


def _lag(cursor: Cursor) -> int:
    """Return the number of messages that are not settled."""
    settled = sum([length for _, length in cursor.settled.ranges()])
    return max(0, cursor.stream.end - cursor.floor - settled)


def _position(stream: StreamQueue, to: str) -> int:
    if to == "first":
        return stream.begin
    if to == "next":
        return stream.end
    if to.startswith("@") and to[1:].isdecimal():
        return stream.position_at(int(to[1:]))
    if to.isdecimal():
        return int(to) + 1
    raise OperationRefused(f"'{to}' is neither first, next, an offset, nor a time")
