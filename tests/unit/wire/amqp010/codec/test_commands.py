"""Commands, controls and headers of messages: each field as the published XML has it, round trips, any octets."""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec import spec
from escrowmq.wire.amqp010.codec.commands import (
    decode_command,
    decode_control,
    decode_header,
    encode_command,
    encode_control,
    encode_header,
)
from escrowmq.wire.amqp010.codec.errors import CodecError, UnknownOperation
from escrowmq.wire.amqp010.codec.structs import STRUCTS, Compound
from escrowmq.wire.amqp010.codec.types import Array
from tests.unit.wire.amqp010.codec.strategies import compounds

PUBLISHED = Path("/usr/share/amqp/specs/0-10-qpid/amqp.0-10-qpid-errata.stripped.xml")
NAMESPACE = "{http://www.amqp.org/schema/amqp.xsd}"
needs_published_xml = pytest.mark.skipif(not PUBLISHED.exists(), reason="Debian's package amqp-specs is not installed")

EACH = settings(max_examples=settings().max_examples // 3)
"""Fewer examples than usual, because there are as many for each of a hundred kinds."""
ANY = [*spec.COMMANDS.values(), *spec.CONTROLS.values(), *STRUCTS.values()]
EXAMPLES: dict[str, tuple[Any, bytes]] = {
    "bit": (True, b""),
    "uint8": (7, b"\x07"),
    "uint16": (7, b"\x00\x07"),
    "uint32": (7, b"\x00\x00\x00\x07"),
    "uint64": (7, bytes(7) + b"\x07"),
    "sequence-no": (7, b"\x00\x00\x00\x07"),
    "datetime": (7, bytes(7) + b"\x07"),
    "str8": ("é", b"\x02\xc3\xa9"),
    "str16": ("é", b"\x00\x02\xc3\xa9"),
    "vbin8": (b"ab", b"\x02ab"),
    "vbin16": (b"ab", b"\x00\x02ab"),
    "vbin32": (b"ab", b"\x00\x00\x00\x02ab"),
    "uuid": (b"u" * 16, b"u" * 16),
    "map": ({}, b"\x00\x00\x00\x04\x00\x00\x00\x00"),
    "array": (Array(["a"], code=0x95), b"\x00\x00\x00\x08\x95\x00\x00\x00\x01\x00\x01a"),
    "struct32": (spec.XaResult(5), b"\x00\x00\x00\x06\x06\x01\x01\x00\x00\x05"),
    "sequence-set": (((1, 2),), b"\x00\x08\x00\x00\x00\x01\x00\x00\x00\x02"),
    "dtx.xid": (spec.Xid(1, b"g", b"b"), b"\x00\x00\x00\x0c\x06\x04\x07\x00\x00\x00\x00\x01\x01g\x01b"),
    "message.reply-to": (spec.ReplyTo("e", "k"), b"\x00\x06\x03\x00\x01e\x01k"),
}
"""For each wire type, a value and its octets."""
DOMAINS = {
    "str16-array": "array",
    "amqp-host-url": "str16",
    "amqp-host-array": "array",
    "name": "str8",
    "session.name": "vbin16",
    "commands": "sequence-set",
    "session.commands": "sequence-set",
    "command-fragments": "array",
    "exchange.name": "str8",
    "queue.name": "str8",
    "destination": "str8",
    "resume-id": "str16",
    "xid": "dtx.xid",
    "reply-to": "message.reply-to",
    **dict.fromkeys(("close-code", "error-code", "reject-code", "xa-status"), "uint16"),
    **dict.fromkeys(("detach-code", "accept-mode", "acquire-mode", "delivery-mode", "delivery-priority"), "uint8"),
    **dict.fromkeys(("flow-mode", "credit-unit"), "uint8"),
}


def published() -> list[tuple[str, int, list[tuple[str, str]]]]:
    """(name, code, fields) of each command and control of the XML, and of each struct with a code."""
    found = []
    for each in ET.parse(PUBLISHED).getroot().findall(f"{NAMESPACE}class"):
        scope = each.attrib["name"]
        for one in each.iter():
            kind = one.tag.removeprefix(NAMESPACE)
            if scope in ("file", "stream") or kind not in ("command", "control", "struct") or "code" not in one.attrib:
                continue
            fields = [(field.attrib["name"], field.attrib["type"]) for field in one.findall(f"{NAMESPACE}field")]
            if scope == "session":
                fields = [(attribute, domain.replace("name", "session.name")) for attribute, domain in fields]
            code = int(each.attrib["code"], 0) << 8 | int(one.attrib["code"], 0)
            found.append((f"{kind} {scope}.{one.attrib['name']}", code, fields))
    return found


def of_name(name: str) -> type[Compound]:
    kind, full_name = name.split()
    table: dict[str, Any] = {"command": spec.COMMANDS, "control": spec.CONTROLS, "struct": STRUCTS}
    found: type[Compound] = next(one for one in table[kind].values() if full_name == one.NAME)
    return found


@needs_published_xml
def test_every_field_is_encoded_as_the_xml_has_it() -> None:
    checked = 0
    for name, code, fields in published():
        kind = of_name(name)
        assert code == kind.CODE, name
        assert len(fields) == len(kind.FIELDS), name
        for number, (attribute, domain) in enumerate(fields):
            value, octets = EXAMPLES[DOMAINS.get(domain, domain)]
            flags = bytes((1 << number & 0xFF, 1 << number >> 8))
            attribute = f"{attribute}_".replace("-", "_") if attribute == "global" else attribute.replace("-", "_")
            one = kind(**{attribute: value})
            assert one.encode() == flags + octets, f"{name}.{attribute}"
            assert kind.decode(flags + octets, 0, 2 + len(octets)) == one, f"{name}.{attribute}"
            checked += 1
    assert checked > 150


def test_a_command_has_a_header_of_one_flag() -> None:
    octets = encode_command(spec.QueueDelete("q", if_empty=True), sync=True)
    assert octets == b"\x08\x02\x01\x01\x05\x00\x01q"
    assert decode_command(octets) == (spec.QueueDelete("q", if_empty=True), True)


def test_a_control_has_no_header() -> None:
    assert encode_control(spec.SessionAttach(b"s", force=True)) == b"\x02\x01\x03\x00\x00\x01s"
    assert decode_control(b"\x02\x01\x03\x00\x00\x01s") == spec.SessionAttach(b"s", force=True)


def test_a_header_is_a_row_of_structs() -> None:
    structs = [spec.DeliveryProperties(routing_key="k"), spec.MessageProperties(content_type="t")]
    assert decode_header(encode_header(structs)) == structs
    assert decode_header(b"") == []


@pytest.mark.parametrize("payload", [b"", b"\x08\x02\x01", b"\x08\x02\x02\x00\x00\x00", b"\x08\x02\x01\x02\x00\x00"])
def test_a_command_without_its_header_is_refused(payload: bytes) -> None:
    with pytest.raises(CodecError):
        decode_command(payload)


@pytest.mark.parametrize("payload", [b"\x09\x01\x01\x00\x00\x00", b"\x05\x07\x01\x00\x00\x00"])
def test_an_unknown_command_is_told_apart(payload: bytes) -> None:
    with pytest.raises(UnknownOperation) as caught:
        decode_command(payload)
    assert (caught.value.class_code, caught.value.code) == (payload[0], payload[1])


def test_an_unknown_control_is_told_apart() -> None:
    with pytest.raises(UnknownOperation):
        decode_control(b"\x02\x7f\x00\x00")
    with pytest.raises(CodecError):
        decode_control(b"\x02")


@pytest.mark.parametrize("kind", ANY, ids=lambda kind: kind.NAME)
@EACH
@given(data=st.data())
def test_what_is_written_is_read(kind: type[Compound], data: st.DataObject) -> None:
    one = data.draw(compounds(kind))
    octets = one.encode()
    assert kind.decode(b".." + octets + b"behind", 2, 2 + len(octets)) == one


@pytest.mark.parametrize("kind", ANY, ids=lambda kind: kind.NAME)
@EACH
@given(data=st.data())
def test_every_cut_and_every_trailing_octet_is_refused(kind: type[Compound], data: st.DataObject) -> None:
    octets = data.draw(compounds(kind)).encode()
    for end in range(len(octets)):
        with pytest.raises(CodecError):
            kind.decode(octets, 0, end)
    with pytest.raises(CodecError):
        kind.decode(octets + b"\x00", 0, len(octets) + 1)


@given(payload=st.binary(max_size=100))
def test_any_octets_are_accepted_or_refused(payload: bytes) -> None:
    for decode in (decode_command, decode_control, decode_header):
        with contextlib.suppress(CodecError):
            decode(payload)


@pytest.mark.parametrize("kind", ANY, ids=lambda kind: kind.NAME)
@EACH
@given(payload=st.binary(max_size=60))
def test_any_octets_of_any_kind_are_accepted_or_refused(kind: type[Compound], payload: bytes) -> None:
    with contextlib.suppress(CodecError):
        kind.decode(payload, 0, len(payload))


def test_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(CodecError, match=r"dtx\.set-timeout"):
        encode_command(spec.DtxSetTimeout(spec.Xid(1, b"", b""), 1 << 32))
