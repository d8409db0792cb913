"""The codec for single messages: the row of one message, with which the columns of many agree."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from escrowmq.columnar.texts import as_text
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.codes import BASIC_PROPERTIES
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.stored import stored_parts
from escrowmq.wire.amqp091.table import decode_table

Items = list[tuple[str, "str | None"]]

_FLAGS: Final = struct.Struct(">H")
_TIMESTAMP: Final = struct.Struct(">Q")
_TABLE: Final = struct.Struct(">I")


class MessageRow(NamedTuple):
    """One message. `properties` are those that it has, without the headers; `headers` is None if it has none."""

    routing_key: str
    properties: dict[str, str | int]
    headers: Items | None
    body: bytes


def row(envelope: Envelope, content: bytes) -> MessageRow:
    """Return the row of a message, whatever octets its content has.

    A property list that is malformed counts as an empty one, and so does a headers table. Strings that are not UTF-8
    get replacement characters.
    """
    key, props, body = stored_parts(envelope, content)
    properties, headers = properties_of(props)
    return MessageRow(key.decode("utf-8", "replace") or envelope.routing_key, properties, headers, body)


def properties_of(props: bytes) -> tuple[dict[str, str | int], Items | None]:
    """Return the properties in a list, and the headers among them as texts."""
    try:
        decoded = Properties.decode(props)
    except SyntaxFault:
        return _lenient(props)
    found = {name: getattr(decoded, name) for name, _ in BASIC_PROPERTIES if name != "headers"}
    headers = None if decoded.headers is None else [(name, as_text(value)) for name, value in decoded.headers.items()]
    return {name: value for name, value in found.items() if value is not None}, headers


def _lenient(props: bytes) -> tuple[dict[str, str | int], Items | None]:
    """Return what can be read of a list that has a fault. If its lengths do not agree with its end, that is nothing."""
    found: dict[str, str | int] = {}
    headers: Items | None = None
    at = 2
    try:
        flags = int(_FLAGS.unpack_from(props)[0])
        for bit, (name, kind) in enumerate(BASIC_PROPERTIES):
            if not flags & 0x8000 >> bit:
                continue
            if kind == "shortstr":
                end = at + 1 + props[at]
                found[name] = props[at + 1 : end].decode("utf-8", "replace")
            elif kind == "table":
                end = at + 4 + int(_TABLE.unpack_from(props, at)[0])
                headers = header_items(props[at:end])
            elif kind == "octet":
                found[name], end = props[at], at + 1
            else:
                (found[name],), end = _TIMESTAMP.unpack_from(props, at), at + 8
            at = end
    except (IndexError, struct.error):
        return {}, None
    return (found, headers) if at == len(props) and not flags & 0b11 else ({}, None)


def header_items(table: bytes) -> Items | None:
    """Return the names and texts of a headers table, given with its length; None if it is malformed."""
    try:
        headers, _ = decode_table(table, 0)
    except SyntaxFault:
        return None
    return [(name, as_text(value)) for name, value in headers.items()]
