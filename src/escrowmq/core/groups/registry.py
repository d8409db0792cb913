"""The consumer groups of all virtual hosts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from escrowmq.core.access.holdings import Holdings
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.groups.group import Changes, Common, Generations, Group
from escrowmq.core.groups.options import GroupLimits, GroupOptions, options_of
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.groups import ProgressCause
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.ports import Random
    from escrowmq.core.queues.queue import Queue


class Groups:
    """The groups by virtual host and name."""

    __slots__ = ("_by_name", "_common", "_last", "limits")

    def __init__(self, engine: Engine, random: Random, holdings: Holdings | None = None) -> None:
        """`random` makes leases distinct from those of earlier runs of the broker. `holdings` bounds their memory."""
        self.limits = GroupLimits()
        self._common = Common(engine, self.limits, holdings or Holdings(), Generations(random))
        self._by_name: dict[str, dict[str, Group]] = {}
        self._last = 0  # the last number that was assigned
        engine.at_each_turn(self._record_advanced)

    # -- by name

    def find(self, vhost: str, name: str) -> Group | None:
        """Return the group of that name, or None."""
        return self._by_name.get(vhost, {}).get(name)

    def all(self, vhost: str) -> list[Group]:
        """Return all groups of a virtual host."""
        return list(self._by_name.get(vhost, {}).values())

    def every(self) -> Iterator[Group]:
        """Return the groups of all virtual hosts."""
        for groups in self._by_name.values():
            yield from groups.values()

    def declare(self, vhost: str, name: str, options: GroupOptions | None = None, *, user: str = "") -> Group:
        """Return the group. It is made if it does not exist, and gets `options` if they are given and differ.

        Raises INVALID_ARGUMENT for wrong options, and LIMIT_EXCEEDED if the virtual host has too many groups, or while
        memory or disk space is scarce.
        """
        group = self.find(vhost, name)
        if group is not None and options in (None, group.options):
            return group
        wanted = options or GroupOptions()
        wanted.check(name)
        check_growth(self._common.engine.scarcity, f"consumer group '{name}' in vhost '{vhost}'")
        if group is None:
            if len(self._by_name.get(vhost, ())) >= self.limits.groups:
                raise BrokerError(
                    Condition.LIMIT_EXCEEDED,
                    f"vhost '{vhost}' has {self.limits.groups} consumer groups, the limit",
                )
            group = self._add(vhost, name, self._last + 1, wanted, user)
        else:
            rebuild, group.options = group.options.fifo != wanted.fifo, wanted
            group.changed(group)
            for cursor in group.cursors.values() if rebuild else ():
                cursor.begin()
        self._common.engine.log.append(Kind.GROUP_SET, encode_change(**set_fields(group)))
        return group

    def _add(self, vhost: str, name: str, number: int, options: GroupOptions, user: str) -> Group:
        group = Group(self._common, vhost, name, number, options, user)
        self._by_name.setdefault(vhost, {})[name] = group
        self._last = max(self._last, number)
        group.changed(group)
        return group

    def delete(self, group: Group) -> int:
        """Delete a group with its progress. Members that wait are called. Return the LSN for the answer."""
        log = self._common.engine.log
        log.append(Kind.GROUP_DELETED, encode_change(number=group.number))
        self._remove(group)
        return log.end_lsn

    def _remove(self, group: Group) -> None:
        del self._by_name[group.vhost][group.name]
        group.end()

    # -- what they depend on

    def forget_queue(self, queue: Queue) -> None:
        """Note that a queue is being deleted."""
        for group in list(self._common.followers.get(queue.ident, ())):
            group.forget_stream(queue)
        self._common.followers.pop(queue.ident, None)

    def end_of_vhost(self, vhost: str) -> None:
        """End the groups of a virtual host that is to be deleted; the record of that implies it."""
        for group in self.all(vhost):
            self._remove(group)
        self._by_name.pop(vhost, None)

    def _record_advanced(self) -> None:
        advanced = self._common.advanced
        for cursor in advanced:
            cursor.record_progress(ProgressCause.ADVANCED)
        advanced.clear()

    # -- recovery and snapshots

    @property
    def changes(self) -> Changes:
        """The groups and cursors that change during a snapshot."""
        return self._common.changes

    def counters(self) -> dict[str, int]:
        """Return the numbers that must not be assigned twice, for a snapshot."""
        return {"next_group": self._last + 1} if self._last else {}

    def seen(self, number: int) -> None:
        """Note that this number has been assigned."""
        self._last = max(self._last, number)

    def restore(self, fields: dict[str, Any]) -> Group:
        """Return the group of a GROUP_SET record."""
        return self._add(fields["vhost"], fields["name"], fields["number"], options_of(fields), fields["user"])


def set_fields(group: Group, options: GroupOptions | None = None) -> dict[str, Any]:
    """Return the fields of the GROUP_SET record of a group, with its options or earlier ones."""
    return {
        "number": group.number,
        "vhost": group.vhost,
        "name": group.name,
        "user": group.user,
        **(options or group.options).fields(),
    }
