"""The broker's commands that a client may ask for again, because its connection was lost before they arrived.

Only sessions that outlive their connection remember them. Transfers are not here: those that are unsettled can be made
again from their messages (`Subscriptions.sent_again`), and the others are never sent twice.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MOST_BYTES: Final = 1 << 20
"""The most bytes that a session remembers. One that would have to remember more is not kept (FAIR-2)."""
_EACH: Final = 200  # the estimated memory of a command apart from its octets


class Sent(NamedTuple):
    """An encoded command, and how far the log has to be synced before it may be sent."""

    payload: bytes
    after: int


class SentCommands:
    """The commands of one session that its client has neither completed nor confirmed, by ascending numbers."""

    __slots__ = ("_commands", "bytes")

    def __init__(self) -> None:
        self._commands: dict[int, Sent] = {}
        self.bytes = 0
        """The estimated memory."""

    @property
    def full(self) -> bool:
        """Whether more is remembered than may be."""
        return self.bytes > MOST_BYTES

    def add(self, number: int, payload: bytes, after: int) -> None:
        """Remember a command. Its number is greater than all before."""
        self._commands[number] = Sent(payload, after)
        self.bytes += len(payload) + _EACH

    def drop(self, first: int, last: int) -> int:
        """Forget the commands from `first` to `last`. Return about how many numbers were looked at."""
        commands = self._commands
        looked_at = min(last - first + 1, len(commands))
        if last - first < len(commands):
            found = [number for number in range(first, last + 1) if number in commands]
        else:
            found = [number for number in commands if first <= number <= last]
        for number in found:
            self.bytes -= len(commands.pop(number).payload) + _EACH
        return looked_at

    def from_number(self, number: int, most: int) -> list[tuple[int, Sent]]:
        """Return the first commands, at most `most`, with numbers from `number` on."""
        return [(each, self._commands[each]) for each in self._commands if each >= number][:most]
