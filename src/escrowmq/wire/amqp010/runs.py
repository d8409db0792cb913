"""Transfers that look like the last one, read by slices.

Most transfers of a client differ from the one before in the values of their properties and in the body only. Their
three frames are recognised by the octets that they have in common, and nothing in them is decoded. All others are left
to the reader, which learns from them how the next ones look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp010.codec.frames import BODY, FRAME_HEAD, HEAD_SIZE, HEADER
from escrowmq.wire.amqp010.content import NO_PROPERTIES

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.ports import SessionPort
    from escrowmq.wire.amqp010.publishing import IncomingTransfers, TransferForm, Wishes
    from escrowmq.wire.amqp010.shape import PropertiesShapes

MOST: Final = 1000
"""Transfers that are read before they are published."""
_SIZES: Final = 256  # sizes of headers whose octets are remembered


class TransferLook:
    """What transfers of one form have in common: their delivery properties, apart from the times."""

    __slots__ = ("after", "before", "form", "stored", "times", "wishes")

    def __init__(
        self, form: TransferForm, wishes: Wishes, stored: int, before: bytes, times: int, after: bytes
    ) -> None:
        """`before` and `after` are the octets around the times, of which there are `times`. Stored content begins with
        the octet `stored`.
        """
        self.form = form
        self.wishes = wishes
        self.stored = bytes((stored,))
        self.before = before
        self.times = times
        self.after = after


class TransferRuns:
    """Reads the runs of one session."""

    __slots__ = ("_command", "_look", "_prefixes", "_publishing", "_session", "_shapes", "_tail")

    def __init__(self, session: SessionPort, publishing: IncomingTransfers, shapes: PropertiesShapes) -> None:
        self._session = session
        self._publishing = publishing
        self._shapes = shapes
        self._look: TransferLook | None = None
        self._command = b""  # the frame of the command
        self._prefixes: dict[int, bytes] = {}  # by size: the header frame up to the times
        self._tail = FRAME_HEAD.pack(7, BODY, 0, 1, session.channel)[4:]  # of a frame's head

    def look_for(self, look: TransferLook) -> None:
        """Expect further transfers that look like this. `learn` follows with the command that it came with."""
        if look is not self._look:
            self._look = look
            self._prefixes.clear()
            self._command = b""

    def learn(self, command: bytes) -> None:
        """Note the frame of the last transfer's command."""
        self._command = command

    def forget(self) -> None:
        """Expect nothing."""
        self._look = None

    def read(self, data: bytes, at: int, end: int, frame_max: int) -> int:
        """Read the transfers from `at` on, as far as they have the look of the last one. Return where the first other
        frame begins, which may be `at`.
        """
        look, command, session = self._look, self._command, self._session
        if look is None or not command or not data.startswith(command, at):
            return at
        startswith, prefixes, shapes = data.startswith, self._prefixes, self._shapes.by_size
        length, times, after, stored, tail = len(command), look.times, look.after, look.stored, self._tail
        before, behind = HEAD_SIZE + len(look.before), len(look.after)
        most_body = min(frame_max, session.limits.message_size + HEAD_SIZE)
        contents: list[bytes] = []
        while len(contents) < MOST and startswith(command, at):
            header = at + length
            size = int.from_bytes(data[header + 2 : header + 4], "big")
            body = header + size
            if body + HEAD_SIZE > end:
                break
            prefix = prefixes.get(size) or self._prefix(look, size, frame_max)
            time = header + before
            own = time + times + behind
            if not prefix or not startswith(prefix, header) or not startswith(after, time + times):
                break
            stop = body + int.from_bytes(data[body + 2 : body + 4], "big")
            if data[body : body + 2] != b"\x07\x03" or data[body + 4 : body + HEAD_SIZE] != tail:
                break
            if not HEAD_SIZE <= stop - body <= most_body or stop > end:
                break
            properties = data[own:body]
            if properties:
                shape = shapes.get(body - own)
                if shape is None or not shape.has(properties):
                    break
            contents.append(
                b"".join(
                    (stored, data[time : time + times], properties or NO_PROPERTIES, data[body + HEAD_SIZE : stop])
                )
            )
            at = stop
        if contents:
            self._publishing.add_all(look.form, look.wishes, session.take_numbers(len(contents)), contents)
        return at

    def _prefix(self, look: TransferLook, size: int, frame_max: int) -> bytes:
        """Return the octets of a header frame of this size up to the times; empty if it can have none."""
        least = HEAD_SIZE + len(look.before) + look.times + len(look.after)
        if not least <= size <= min(frame_max, self._session.limits.header_size + HEAD_SIZE):
            return b""
        if len(self._prefixes) >= _SIZES:
            self._prefixes.clear()
        found = self._prefixes[size] = FRAME_HEAD.pack(3, HEADER, size, 1, self._session.channel) + look.before
        return found
