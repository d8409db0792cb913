"""Sends of classic remoting, encoded before the load begins, with the places that are written when they are sent."""

from __future__ import annotations

import json
import re
import struct
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from escrowmq.perf.messages import STAMP_SIZE, LoadMessage
from escrowmq.perf.rocketmq.properties import DIGITS, FIRST_NUMBER, TAG, numbered, rendered, user_properties

SEND: Final = 310
SEND_BATCH: Final = 320
VERSION: Final = 479
"""The version of RocketMQ 5.3.3."""
ID_LENGTH: Final = 32
"""The digits of a message's id in classic clients."""
_HEAD: Final = struct.Struct(">II")
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")
"""Texts that JSON writes as they are."""
_PART: Final = struct.Struct(">iiiii")
_STAMP: Final = struct.Struct(">Q")


def command(code: int, fields: dict[str, str], body: bytes = b"", opaque: int = 0, flag: int = 0) -> bytes:
    """Return the frame of a request, with a header in JSON as the Java client writes it."""
    values = list(fields.values())
    if not _PLAIN.fullmatch("".join(values)):
        values = [json.dumps(value)[1:-1] for value in values]
    header = (_template(code, tuple(fields), flag) % (*values, opaque)).encode()
    return _HEAD.pack(4 + len(header) + len(body), len(header)) + header + body


@lru_cache(64)
def _template(code: int, names: tuple[str, ...], flag: int) -> str:
    """Return the header of a request with these fields, and places for their values and for the request's number."""
    pairs = ",".join([f'"{name}":"%s"' for name in names])
    return (
        f'{{"code":{code},"extFields":{{{pairs}}},"flag":{flag},"language":"JAVA","opaque":%d,'
        f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
    )


@dataclass(frozen=True, slots=True)
class SendTarget:
    """Where and how a producer sends: `group` of the producer, and `queues` of the topic, used in turn.

    `transactional` sends are half messages. `batch` is the number of messages in a send, or 0.
    """

    topic: str
    queues: int
    group: str
    transactional: bool = False
    batch: int = 0


class SendBlock:
    """Encoded sends, used in a cycle. Each gets its number, and its messages their ids, when it is sent."""

    __slots__ = ("_bodies", "_ids", "_opaques", "_size", "_units", "each")

    def __init__(self, made: list[LoadMessage], target: SendTarget, prefix: str) -> None:
        """`prefix` begins the ids of all messages."""
        self.each = max(target.batch, 1)
        """The number of messages in a send."""
        self._units: list[bytearray] = []
        self._opaques: list[int] = []
        self._ids: list[list[int]] = []
        self._bodies: list[list[int]] = []
        for number, first in enumerate(range(0, len(made), self.each)):
            self._add(encode(made[first : first + self.each], target, number % target.queues, prefix), target)
        self._size = len(self._units)

    def _add(self, unit: bytes, target: SendTarget) -> None:
        marker = f"{FIRST_NUMBER:0{DIGITS}d}".encode()
        header = 8 + int.from_bytes(unit[5:8], "big")
        self._units.append(bytearray(unit))
        self._opaques.append(unit.index(b'"opaque":' + marker) + 9)
        ids = [at for at in _places(unit, marker) if at != self._opaques[-1]]
        self._ids.append(ids)
        bodies = [header]
        if target.batch:
            bodies, at = [], header
            while at < len(unit):
                bodies.append(at + _PART.size)
                at += int.from_bytes(unit[at : at + 4], "big")
        self._bodies.append(bodies)

    def take(self, number: int, sends: int, stamp: int | None) -> bytes:
        """Return the next `sends`, the first of which has this `number`. `stamp` is the time (ns) for the bodies."""
        units, size = self._units, self._size
        taken = []
        for send in range(number, number + sends):
            index = send % size
            unit = units[index]
            digits = b"%d" % (FIRST_NUMBER + send)
            at = self._opaques[index]
            unit[at : at + DIGITS] = digits
            for message, at in enumerate(self._ids[index], send * self.each):
                unit[at : at + DIGITS] = b"%d" % (FIRST_NUMBER + message)
            if stamp is not None:
                for at in self._bodies[index]:
                    _STAMP.pack_into(unit, at, stamp)
            taken.append(bytes(unit))
        return b"".join(taken)


def _places(unit: bytes, marker: bytes) -> list[int]:
    found, at = [], unit.find(marker)
    while at >= 0:
        found.append(at)
        at = unit.find(marker, at + 1)
    return found


def encode(made: list[LoadMessage], target: SendTarget, queue: int, prefix: str) -> bytes:
    """Return one send, with the first number everywhere. Several messages are a batch."""
    ident = numbered(prefix, FIRST_NUMBER)
    properties = properties_of(made[0], target, ident)
    body = made[0].body
    if target.batch:
        properties = rendered((("WAIT", "true"),))
        body = b"".join(_part(message, properties_of(message, target, ident)) for message in made)
    fields = {
        "a": target.group,
        "b": target.topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "4" if target.transactional else "0",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if target.batch else "false",
    }
    return command(SEND_BATCH if target.batch else SEND, fields, body, FIRST_NUMBER)


def properties_of(message: LoadMessage, target: SendTarget, ident: str) -> str:
    """Return a message's properties in their text form."""
    own = {"KEYS": message.message_id or "", "UNIQ_KEY": ident, "WAIT": "true", "TAGS": TAG}
    if target.transactional:
        own |= {"TRAN_MSG": "true", "PGROUP": target.group}
    return rendered((user_properties(message) | own).items())


def _part(message: LoadMessage, properties: str) -> bytes:
    text, body = properties.encode(), message.body
    size = _PART.size + len(body) + 2 + len(text)
    return _PART.pack(size, 0, 0, 0, len(body)) + body + len(text).to_bytes(2, "big") + text


def stamp_of(body: bytes) -> int:
    """Return the time (ns) in a body."""
    return int(_STAMP.unpack_from(body)[0]) if len(body) >= STAMP_SIZE else 0
