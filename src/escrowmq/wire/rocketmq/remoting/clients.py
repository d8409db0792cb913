"""The consumers of all classic clients, by consumer group. All connections share the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.remoting.codes import Code
    from escrowmq.wire.rocketmq.remoting.questions import Answered


class Notified(Protocol):
    """A connection whose client is told about changes of its groups, and can be asked."""

    def consumers_changed(self, group: str) -> None:
        """The consumers of `group` are others now, so that the client divides the queues anew."""
        ...

    def ask(self, code: Code, fields: dict[str, str], body: bytes, answered: Answered) -> None:
        """Send a request to the client, and call `answered` with the response."""
        ...


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """An expression of a kind, TAG or SQL92, that a consumer has for a topic, and the client's number of it."""

    kind: str = ""
    expression: str = "*"
    version: int = 0


@dataclass(slots=True)
class GroupMember:
    """A consumer in a group. `seen_ms` is the time of its last heartbeat."""

    connection: Notified
    client_id: str
    consume_type: str = ""
    message_model: str = ""
    consume_from: str = ""
    language: str = ""
    version: int = 0
    address: str = ""
    seen_ms: int = 0
    subscriptions: Mapping[str, TopicSubscription] = field(default_factory=dict)


class ConsumerRegistry:
    """The members of each group, by client id."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, GroupMember]] = {}
        self._of_connection: dict[Notified, dict[str, str]] = {}
        self._subscriptions: dict[Notified, int] = {}
        self._resets: dict[str, set[int]] = {}

    def join(self, group: str, member: GroupMember) -> None:
        """Add a member to a group, or bring it up to date. Tell all members, the new one too, if there is a change.

        A connection has one member in a group, and a client id stands for one member: the latest.
        """
        members, connection = self._groups.setdefault(group, {}), member.connection
        known = members.get(member.client_id)
        own_id = self._forget(connection, group)
        if own_id is not None and own_id != member.client_id:
            members.pop(own_id, None)
        if known is not None and known.connection is not connection:
            self._forget(known.connection, group)
            known = None
        members[member.client_id] = member
        self._of_connection.setdefault(connection, {})[group] = member.client_id
        self._subscriptions[connection] = self.subscriptions_of(connection) + len(member.subscriptions)
        if known is None or known.subscriptions.keys() != member.subscriptions.keys():
            self._tell(group)

    def leave(self, connection: Notified, group: str) -> None:
        """Remove the member that a connection has in a group, and tell the others."""
        client_id = self._forget(connection, group)
        members = self._groups.get(group)
        if client_id is None or members is None:
            return
        members.pop(client_id, None)
        if not members:
            del self._groups[group]
            self._resets.pop(group, None)
        self._tell(group)

    def leave_all(self, connection: Notified) -> None:
        """Remove a connection from all groups."""
        for group in list(self._of_connection.get(connection, ())):
            self.leave(connection, group)

    def groups_of(self, connection: Notified) -> Mapping[str, str]:
        """Return the client id of a connection in each of its groups."""
        return self._of_connection.get(connection, {})

    def subscriptions_of(self, connection: Notified) -> int:
        """Return the number of subscriptions of a connection in all of its groups."""
        return self._subscriptions.get(connection, 0)

    def members(self, group: str) -> Mapping[str, GroupMember]:
        """Return the members of a group by client id."""
        return self._groups.get(group, {})

    def member(self, connection: Notified, group: str) -> GroupMember | None:
        """Return the member that a connection has in a group."""
        client_id = self.groups_of(connection).get(group)
        return None if client_id is None else self._groups[group].get(client_id)

    # -- progress that an operator has reset

    def note_reset(self, group: str, stream: int) -> None:
        """Note that the progress of a group in a stream was reset. Until a member that consumes the stream is told,
        the offsets that members report do not count. A group without members needs no note.
        """
        if group in self._groups:
            self._resets.setdefault(group, set()).add(stream)

    def was_reset(self, group: str, stream: int) -> bool:
        """Whether members of a group have yet to be told of a reset."""
        return stream in self._resets.get(group, ())

    def forget_reset(self, group: str, stream: int) -> None:
        """Note that the member that consumes a stream knows of the reset."""
        self._resets[group].discard(stream)

    def _forget(self, connection: Notified, group: str) -> str | None:
        groups = self._of_connection.get(connection)
        if groups is None:
            return None
        found = groups.pop(group, None)
        member = self._groups.get(group, {}).get(found or "")
        if member is not None and member.connection is connection:
            self._subscriptions[connection] -= len(member.subscriptions)
        if not groups:
            del self._of_connection[connection]
            self._subscriptions.pop(connection, None)
        return found

    def _tell(self, group: str) -> None:
        for member in self.members(group).values():
            member.connection.consumers_changed(group)
