"""Headers that differ in their values only are read by the pattern of those before them.

A client writes all of its requests of one kind alike: the same members in the same order, without white space. After
some of them, a regular expression takes the place of the JSON decoder for headers of this form. It accepts only headers
for which the decoder would return the same; all others are left to the decoder.
"""

from __future__ import annotations

import json
import re
from typing import Final

from escrowmq.wire.rocketmq.remoting.frames import HEAD, JSON, Command, decode

ALIKE: Final = 16
"""Headers of one kind that are decoded before the pattern is made, and again if one is different."""
MOST_KINDS: Final = 16
MOST_MISSES: Final = 8
"""Headers of one kind for which the pattern was wrong, after which it is not tried any more."""
MOST_VALUES: Final = 64

_MOST_OPAQUE: Final = (1 << 31) - 1
_PLAIN: Final = r'([^"\\\x00\x03-\x1f]*)'
"""A value without escaped characters but U+0001 and U+0002, which are between properties. These are replaced first."""


class _Kind:
    """What is known of the headers that begin alike."""

    __slots__ = ("command", "misses", "names", "opaque", "pattern", "seen")

    def __init__(self) -> None:
        self.seen = self.misses = 0
        self.pattern: re.Pattern[str] | None = None
        self.names: tuple[str, ...] = ()  # of the values in the pattern, but for `opaque`
        self.opaque = 0  # the index of its value
        self.command = Command(0)


class HeaderShapes:
    """The forms of the headers that one client sends."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[bytes, _Kind] = {}

    def decode(self, frame: bytes) -> Command:
        """Do `frames.decode`, faster if the header has the form of earlier ones. Raises RemotingError."""
        if frame[4] != JSON:
            return decode(frame)
        end = HEAD + int.from_bytes(frame[5:8], "big")
        header = frame[HEAD:end]
        begin = header[: header.find(b",")]
        kind = self._kinds.get(begin)
        if kind is not None and kind.pattern is not None:
            command = _read(kind, header)
            if command is not None:
                command.body = frame[end:]
                return command
        command = decode(frame)
        self._learn(begin, kind, header, command)
        return command

    def _learn(self, begin: bytes, kind: _Kind | None, header: bytes, command: Command) -> None:
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                return
            kind = self._kinds[begin] = _Kind()
        if kind.misses >= MOST_MISSES:
            return
        if kind.pattern is not None:
            kind.misses += 1
            kind.pattern, kind.seen = None, 0
        kind.seen += 1
        if kind.seen == ALIKE:
            _make(kind, header, command)
            kind.seen = 0


def _read(kind: _Kind, header: bytes) -> Command | None:
    """Return the command, or None if the header may have another form."""
    assert kind.pattern is not None
    try:
        text = header.decode()
    except UnicodeDecodeError:
        return None
    if "\x01" in text or "\x02" in text:
        return None
    if "\\" in text:
        text = text.replace(r"\u0001", "\x01").replace(r"\u0002", "\x02")
    match = kind.pattern.fullmatch(text)
    if match is None:
        return None
    values = list(match.groups())
    opaque = int(values.pop(kind.opaque))
    if opaque > _MOST_OPAQUE:
        return None
    like = kind.command
    fields = dict(zip(kind.names, values, strict=False))
    return Command(like.code, fields, b"", opaque, like.flag, like.remark, like.language, like.version)


def _make(kind: _Kind, header: bytes, command: Command) -> None:
    """Make the pattern from a header, unless that is not written in the shortest way, or has unusual members."""
    try:
        found = json.loads(header)
    except ValueError:
        return
    fields, opaque = found.get("extFields"), found.get("opaque")
    if not isinstance(fields, dict) or len(fields) > MOST_VALUES or not all(map(_is_text, fields.values())):
        return
    if type(opaque) is not int or _compact(found) != header.decode():
        return
    names = list(found)
    kind.opaque = len(fields) if names.index("extFields") < names.index("opaque") else 0
    members = [f"{_literal(name)}:{_pattern(name, value)}" for name, value in found.items()]
    kind.pattern, kind.names, kind.command = re.compile(r"\{" + ",".join(members) + r"\}"), tuple(fields), command


def _compact(found: object) -> str:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _literal(value: object) -> str:
    return re.escape(_compact(value))


def _pattern(name: str, value: object) -> str:
    if name == "opaque":
        return "(0|[1-9][0-9]{0,9})"
    if name != "extFields" or not isinstance(value, dict):
        return _literal(value)
    return r"\{" + ",".join([f'{_literal(key)}:"{_PLAIN}"' for key in value]) + r"\}"
