"""Transfers that look like the last one, read by slices.

Most transfers of a client differ from the one before in the values of their properties and in the body only. Their
three frames are recognised by the octets that they have in common, which one call of `struct` takes out, and nothing in
them is decoded. All others are left to the reader, which learns from them how the next ones look.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.wire.amqp010.codec.frames import BODY, FRAME_HEAD, HEAD_SIZE, HEADER
from escrowmq.wire.amqp010.content import NO_PROPERTIES

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.ports import SessionPort
    from escrowmq.wire.amqp010.publishing import IncomingTransfers, TransferForm, Wishes
    from escrowmq.wire.amqp010.shape import PropertiesShape, PropertiesShapes

MOST: Final = 1000
"""Transfers that are read before they are published."""
_LOOKS: Final = 8  # looks of which plans are kept
_PLANS: Final = 64  # plans that are kept for each
_BODY: Final = b"\x07\x03"  # flags and type of a frame that is the whole body

_Unpack = Callable[[bytes, int], tuple[bytes, ...]]


class _Plan(NamedTuple):
    """How transfers of one look, whose header frames have one size, are recognised and taken apart.

    All places are counted from the beginning of the command's frame.
    """

    unpack: _Unpack
    """Takes out the octets that all of these transfers have in common, up to the head of the body's frame."""
    expected: tuple[bytes, ...]
    texts: _Unpack | None
    """Takes out the texts of the message properties."""
    times: int
    """Where the times are that are a part of the content."""
    behind_times: int
    properties: int
    body: int
    """Where the body's frame begins."""
    command: bytes
    shape: PropertiesShape | None


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

    __slots__ = ("_command", "_look", "_looks", "_plans", "_publishing", "_session", "_shapes", "_tail")

    def __init__(self, session: SessionPort, publishing: IncomingTransfers, shapes: PropertiesShapes) -> None:
        self._session = session
        self._publishing = publishing
        self._shapes = shapes
        self._look: TransferLook | None = None
        self._command = b""  # the frame of the command
        self._plans: dict[int, _Plan] = {}  # of the present look, by the size of the header's frame
        self._looks: dict[TransferLook, dict[int, _Plan]] = {}
        self._tail = FRAME_HEAD.pack(7, BODY, 0, 1, session.channel)[4:]  # of a frame's head

    def look_for(self, look: TransferLook) -> None:
        """Expect further transfers that look like this. `learn` follows with the command that it came with."""
        if look is self._look:
            return
        self._look = look
        self._command = b""
        plans = self._looks.get(look)
        if plans is None:
            if len(self._looks) >= _LOOKS:
                self._looks.clear()
            plans = self._looks[look] = {}
        self._plans = plans

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
        most_body = min(frame_max, session.limits.message_size + HEAD_SIZE)
        texts: list[bytes] = []
        contents, past = self._walk(look, data, at, end, most_body, texts)
        if texts and not b"".join(texts).isascii():
            contents, past = self._walk(look, data, at, end, most_body, None)
        if contents:
            self._publishing.add_all(look.form, look.wishes, session.take_numbers(len(contents)), contents)
        return past

    def _walk(
        self, look: TransferLook, data: bytes, at: int, end: int, most_body: int, texts: list[bytes] | None
    ) -> tuple[list[bytes], int]:
        """Return the contents of transfers, and where the first other frame begins.

        The caller has to check that all of the `texts` in their properties are ASCII. If that is None, those that are
        not end the run.
        """
        plans, stored, size_at = self._plans, look.stored, len(self._command) + 2
        contents: list[bytes] = []
        while len(contents) < MOST and at + size_at + HEAD_SIZE < end:
            size = data[at + size_at] << 8 | data[at + size_at + 1]
            plan = plans.get(size) or self._plan(look, data, at, size)
            if plan is None:
                break
            unpack, expected, texts_of, times, behind, properties, body, _, _ = plan
            begin = at + body
            if begin + HEAD_SIZE > end:
                break
            if unpack(data, at) != expected:
                self._doubt(size, plan)
                break
            stop = begin + (data[begin + 2] << 8 | data[begin + 3])
            if not HEAD_SIZE <= stop - begin <= most_body or stop > end:
                break
            if texts_of is not None:
                if texts is not None:
                    texts += texts_of(data, at)
                elif not all(map(bytes.isascii, texts_of(data, at))):
                    break
            contents.append(
                b"".join(
                    (
                        stored,
                        data[at + times : at + behind],
                        data[at + properties : begin] or NO_PROPERTIES,
                        data[begin + HEAD_SIZE : stop],
                    )
                )
            )
            at = stop
        return contents, at

    def _plan(self, look: TransferLook, data: bytes, at: int, size: int) -> _Plan | None:
        """Return the plan for transfers whose header frame has this size; None if there can be none, or if the one at
        `at` has another look.
        """
        session, command = self._session, self._command
        least = HEAD_SIZE + len(look.before) + look.times + len(look.after)
        if not least <= size <= min(session.frame_max, session.limits.header_size + HEAD_SIZE):
            return None
        prefix = FRAME_HEAD.pack(3, HEADER, size, 1, session.channel) + look.before
        times = len(command) + len(prefix)
        behind = times + look.times
        properties = behind + len(look.after)
        if not data.startswith(prefix, at + len(command)) or not data.startswith(look.after, at + behind):
            return None
        shape = self._shapes.by_size.get(size - least) if size > least else None
        if size > least and shape is None:
            return None
        fixed, layout = (shape.fixed, shape.layout) if shape is not None else ((), "")
        common = f">{len(command)}s{len(prefix)}s{look.times}x{len(look.after)}s{layout}2s2x{len(self._tail)}s"
        plan = _Plan(
            Struct(common).unpack_from,
            (command, prefix, look.after, *fixed, _BODY, self._tail),
            Struct(f">{properties}x{shape.texts}").unpack_from if shape is not None and shape.texts else None,
            times,
            behind,
            properties,
            len(command) + size,
            command,
            shape,
        )
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[size] = plan
        return plan

    def _doubt(self, size: int, plan: _Plan) -> None:
        """Forget a plan that did not fit, if another one would be made now."""
        known = self._shapes.by_size.get(plan.body - plan.properties)
        if plan.command != self._command or (plan.shape is not None and known is not plan.shape):
            del self._plans[size]
