"""Frames of classic remoting: a length, a header in JSON or in binary form, and a body. All numbers are big-endian.

octets   0–3   length of everything after this field
         4     form of the header: 0 is JSON, 1 is binary
         5–7   length of the header
         8–    header, body
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

JSON: Final = 0
BINARY: Final = 1
RESPONSE: Final = 1
ONE_WAY: Final = 2

HEAD: Final = 8
"""Octets before the header."""
LARGEST_FRAME: Final = 16 << 20
LARGEST_HEADER: Final = 1 << 18
MOST_FIELDS: Final = 512

VERSION: Final = 479
"""The version of the protocol that the broker says it speaks: that of RocketMQ 5.3.3."""
_LANGUAGES: Final = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"),
    "NODE_JS",
)
_FIXED: Final = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
_SHORT: Final = struct.Struct(">H")
_LONG: Final = struct.Struct(">i")
_I32: Final = 1 << 31
_DECODER: Final = json.JSONDecoder()
_TEXTS: Final = frozenset({str})
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")
_TEMPLATES: Final = 256


class RemotingError(ValueError):
    """A frame is malformed or too large, so the connection is closed. The text says why."""


@dataclass(slots=True)
class Command:
    """A request, or the response to one.

    `code` is that of the request, or the result in a response. `opaque` pairs a response with its request. A fault has
    its text in `remark`. `form` is that of the header.
    """

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: str = "JAVA"
    version: int = VERSION
    form: int = JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of the broker's own."""
        return bool(self.flag & RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether nobody waits for an answer."""
        return bool(self.flag & ONE_WAY)


def frame_size(head: bytes) -> int:
    """Return the size of the frame that begins with these 8 octets. Raises RemotingError."""
    total = int.from_bytes(head[:4], "big")
    length = int.from_bytes(head[5:8], "big")
    if total > LARGEST_FRAME:
        raise RemotingError(f"a frame has {total} octets; at most {LARGEST_FRAME} are allowed")
    if head[4] not in {JSON, BINARY}:
        raise RemotingError(f"the header has the unknown form {head[4]}")
    if length > min(total - 4, LARGEST_HEADER):
        raise RemotingError(f"the header has {length} octets, in a frame of {total}")
    return total + 4


def decode(frame: bytes) -> Command:
    """Return the command in a whole frame, whose first octets `frame_size` has accepted. Raises RemotingError."""
    end = HEAD + int.from_bytes(frame[5:8], "big")
    command = _from_json(frame[HEAD:end]) if frame[4] == JSON else _from_binary(frame[HEAD:end])
    command.body = frame[end:]
    return command


def encode(command: Command) -> bytes:
    """Return the frame of a command."""
    header = _to_json(command) if command.form == JSON else _to_binary(command)
    head = struct.pack(">II", 4 + len(header) + len(command.body), command.form << 24 | len(header))
    return b"".join((head, header, command.body))


def _from_json(header: bytes) -> Command:
    try:
        text = header.decode()
        found, end = _DECODER.raw_decode(text)
        if end < len(text):
            found = _loaded(header)
    except (ValueError, RecursionError):
        found = _loaded(header)
    if not isinstance(found, dict):
        raise RemotingError("the header is not a JSON object")
    fields = found.get("extFields")
    if fields is None:
        fields = {}
    if not isinstance(fields, dict) or len(fields) > MOST_FIELDS:
        raise RemotingError("extFields of the header is not an object, or has too many members")
    remark, language = found.get("remark"), found.get("language")
    if not _TEXTS.issuperset(map(type, fields.values())):
        fields = {name: given for name, value in fields.items() if (given := _text(value)) is not None}
    if b"\\u" in header or not header.startswith(b"{"):
        fields = {encodable(name): encodable(value) for name, value in fields.items()}
    return Command(
        _integer(found, "code"),
        fields,
        b"",
        _integer(found, "opaque"),
        _integer(found, "flag"),
        remark if isinstance(remark, str) else None,
        language if isinstance(language, str) else "OTHER",
        _integer(found, "version"),
    )


def encodable(text: str) -> str:
    """Return a text of JSON with a question mark for each half of a surrogate pair, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _loaded(header: bytes) -> object:
    """Return a header that has white space around it, or another encoding of JSON."""
    try:
        return json.loads(header)
    except (ValueError, RecursionError) as error:
        raise RemotingError(f"the header is not JSON: {error}") from None


def _integer(found: Mapping[str, object], name: str) -> int:
    value = found.get(name, 0)
    if type(value) is not int or not -_I32 <= value < _I32:
        raise RemotingError(f"{name} of the header is not a number of 32 bits")
    return value


def _text(value: object) -> str | None:
    """A value of extFields as text. Clients also send numbers and truth values."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) < 1 << 64:
        return str(value)
    return repr(value) if isinstance(value, float) else None


def _from_binary(header: bytes) -> Command:
    try:
        code, language, version, opaque, flag, length = _FIXED.unpack_from(header)
        remark, at = _octets(header, _FIXED.size, length)
        (length,) = _LONG.unpack_from(header, at)
        at += _LONG.size
        if length < 0 or at + length != len(header):
            raise RemotingError("the fields of a binary header do not end with it")
        fields: dict[str, str] = {}
        while at < len(header):
            (length,) = _SHORT.unpack_from(header, at)
            name, at = _octets(header, at + _SHORT.size, length)
            (length,) = _LONG.unpack_from(header, at)
            value, at = _octets(header, at + _LONG.size, length)
            fields[name.decode()] = value.decode()
            if len(fields) > MOST_FIELDS:
                raise RemotingError("a binary header has too many fields")
        text = remark.decode() if remark else None
    except (struct.error, UnicodeDecodeError) as error:
        raise RemotingError(f"a binary header is malformed: {error}") from None
    spoken = _LANGUAGES[language] if language < len(_LANGUAGES) else "OTHER"
    return Command(code, fields, b"", opaque, flag, text, spoken, version, BINARY)


def _octets(header: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length < 0 or at + length > len(header):
        raise RemotingError("a text in a binary header is longer than the header")
    return header[at : at + length], at + length


def _to_json(command: Command) -> bytes:
    fields = command.fields
    if command.remark is None and _is_plain("".join(fields.values())):
        template = _template(command.code, tuple(fields), command.flag, command.language, command.version)
        return (template % (*fields.values(), command.opaque)).encode("utf-8", "replace")
    header: dict[str, object] = {
        "code": command.code,
        "extFields": command.fields,
        "flag": command.flag,
        "language": command.language,
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.remark is not None:
        header["remark"] = command.remark
    return json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _is_plain(text: str) -> bool:
    """Return whether a text in JSON has no escaped characters."""
    return _PLAIN.fullmatch(text) is not None


@lru_cache(_TEMPLATES)
def _template(code: int, names: tuple[str, ...], flag: int, language: str, version: int) -> str:
    """Return the header of commands with plain values in these fields, and places for the values and for `opaque`."""
    pairs = ",".join([f'{_quoted(name)}:"%s"' for name in names])
    return (
        f'{{"code":{int(code)},"extFields":{{{pairs}}},"flag":{flag},"language":{_quoted(language)},"opaque":%d,'
        f'"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("%", "%%")


def _to_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    parts = []
    for name, value in command.fields.items():
        key, data = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        parts += [_SHORT.pack(len(key)), key, _LONG.pack(len(data)), data]
    fields = b"".join(parts)
    language = _LANGUAGES.index(command.language) if command.language in _LANGUAGES else _LANGUAGES.index("OTHER")
    fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    return b"".join((fixed, remark, _LONG.pack(len(fields)), fields))
