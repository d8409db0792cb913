"""Content properties: decoding, scanning, and rewriting that changes only the named ones."""

from __future__ import annotations

from typing import Any

import pamqp.commands
import pamqp.header
import pytest

from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.properties import (
    NO_PROPERTIES,
    PERSISTENT,
    Properties,
    scan,
    with_header,
    with_headers,
    without_expiration,
    without_headers,
)
from escrowmq.wire.amqp091.table import Byte, FieldTable, Timestamp

FULL: dict[str, Any] = {
    "content_type": "application/json",
    "content_encoding": "utf-8",
    "headers": {"CC": ["a"], "n": Byte(1)},
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": "c-1",
    "reply_to": "amq.rabbitmq.reply-to",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "order",
    "user_id": "guest",
    "app_id": "shop",
    "cluster_id": "c",
}


def test_all_properties_are_written_and_read_back() -> None:
    properties = Properties(**FULL)
    props = properties.encode()
    assert props[:2] == b"\xff\xfc"
    assert Properties.decode(props) == properties
    assert Properties.decode(props).headers == FULL["headers"]


@pytest.mark.parametrize("name", FULL)
def test_each_property_alone_has_its_flag_and_its_octets(name: str) -> None:
    props = Properties(**{name: FULL[name]}).encode()
    number = [known for known, _ in codes.BASIC_PROPERTIES].index(name)
    assert props[:2] == (0x8000 >> number).to_bytes(2, "big")
    assert repr(Properties.decode(props)) == f"Properties({name}={FULL[name]!r})"
    rest = {other: value for other, value in FULL.items() if other != name}
    assert Properties.decode(Properties(**rest).encode()) == Properties(**rest)


def test_pamqp_reads_and_writes_the_same_octets() -> None:
    values = FULL | {"headers": {"CC": "a"}, "timestamp": None, "cluster_id": ""}
    ours = Properties(**(values | {"cluster_id": None})).encode()
    theirs = pamqp.header.ContentHeader(0, 5, pamqp.commands.Basic.Properties(**renamed(values)))
    assert theirs.marshal()[12:] == ours
    back = pamqp.header.ContentHeader()
    back.unmarshal(bytes(12) + ours)
    assert {name: getattr(back.properties, name) for name in renamed(values)} == renamed(values)


def renamed(values: dict[str, Any]) -> dict[str, Any]:
    return {{"type": "message_type"}.get(name, name): value for name, value in values.items()}


def test_an_empty_list_has_no_octets_but_the_flags() -> None:
    assert Properties().encode() == NO_PROPERTIES
    assert Properties.decode(NO_PROPERTIES) == Properties()
    found = scan(NO_PROPERTIES)
    assert (found.delivery_mode, found.priority, found.expiration, found.user_id, found.headers) == (None,) * 5


def test_properties_are_equal_by_value() -> None:
    assert Properties(priority=1) != Properties(priority=2)
    assert Properties() != "Properties()"
    with pytest.raises(TypeError):
        hash(Properties())


@pytest.mark.parametrize(
    "values",
    [
        {"content_type": "x" * 256},
        {"delivery_mode": 256},
        {"timestamp": -1},
        {"type": "\udcff"},
        {"headers": {"a": 2**63}},
    ],
    ids=repr,
)
def test_values_that_do_not_fit_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"property {next(iter(values))}: "):
        Properties(**values).encode()


# ---- scan ----


def test_scan_finds_the_values_that_the_broker_needs() -> None:
    props = Properties(**FULL).encode()
    found = scan(props)
    assert (found.delivery_mode, found.priority) == (PERSISTENT, 9)
    assert (found.expiration, found.user_id, found.reply_to) == ("60000", "guest", "amq.rabbitmq.reply-to")
    assert found.headers == FULL["headers"]
    assert (found.has_cc, found.has_bcc) == (True, False)
    table = props[found.headers_at : found.headers_at + found.headers_size]
    assert Properties(headers=FULL["headers"]).encode()[2:] == table
    assert props[found.expiration_at :][: found.expiration_size] == b"\x0560000"


def test_scan_returns_the_place_of_absent_properties() -> None:
    props = Properties(content_type="a", content_encoding="b", delivery_mode=1).encode()
    found = scan(props)
    assert (found.headers_at, found.headers_size) == (6, 0)
    assert (found.expiration_at, found.expiration_size) == (7, 0)


@pytest.mark.parametrize("name", FULL)
def test_scan_agrees_with_decoding_for_any_absent_property(name: str) -> None:
    values = {other: value for other, value in FULL.items() if other != name}
    found = scan(Properties(**values).encode())
    for attribute in ("delivery_mode", "priority", "reply_to", "expiration", "user_id", "headers"):
        assert getattr(found, attribute) == values.get(attribute)


def test_bcc_is_found() -> None:
    found = scan(Properties(headers={"BCC": []}).encode())
    assert (found.has_cc, found.has_bcc) == (False, True)


def test_cut_or_overlong_octets_are_an_error_for_both() -> None:
    props = Properties(**FULL).encode()
    for bad in (*(props[:size] for size in range(len(props))), props + b"\0"):
        with pytest.raises(SyntaxFault, match="SYNTAX_ERROR - "):
            scan(bad)
        with pytest.raises(SyntaxFault, match="SYNTAX_ERROR - "):
            Properties.decode(bad)


@pytest.mark.parametrize(
    "octets", ["0001", "0001 0000", "0002", "ffff", "8000 01ff", "0010 01ff", "0100 02c328", "2000 00000003 01ff56"]
)
def test_undefined_flags_and_invalid_text_are_an_error_for_both(octets: str) -> None:
    for read in (scan, Properties.decode):
        with pytest.raises(SyntaxFault, match="SYNTAX_ERROR - "):
            read(bytes.fromhex(octets))


# ---- rewriting ----

ODD = bytes.fromhex("03 6f6464 74 05")  # a field "odd" of true, written as 5: kept as it came
HEADERS_AS_THEY_CAME = b"\x03BCCS\0\0\0\1q" + ODD + b"\1kl\0\0\0\0\0\0\0\1"


def message(headers: bytes | None) -> bytes:
    """Return octets of a message with properties around headers and expiration; the table's fields are given as
    octets.
    """
    flags = 0xD900 | (0x2000 if headers is not None else 0)
    table = b"" if headers is None else len(headers).to_bytes(4, "big") + headers
    return flags.to_bytes(2, "big") + b"\1t\1e" + table + b"\2\5" + b"\x0260"


def test_the_message_of_these_tests_is_well_formed() -> None:
    found = Properties.decode(message(HEADERS_AS_THEY_CAME))
    assert found.headers == {"BCC": "q", "odd": True, "k": 1}
    assert (found.content_type, found.priority, found.expiration) == ("t", 5, "60")


def test_one_header_is_removed_and_the_others_stay_octet_by_octet() -> None:
    props = message(HEADERS_AS_THEY_CAME)
    without = message(ODD + b"\1kl\0\0\0\0\0\0\0\1")
    assert without_headers(props, scan(props), {"BCC", "absent"}) == without
    assert without_headers(props, scan(props), {"BCC", "odd", "k"}) == message(b"")


def test_nothing_to_remove_leaves_the_same_object() -> None:
    for props in (message(HEADERS_AS_THEY_CAME), message(None), message(b"")):
        assert without_headers(props, scan(props), {"absent"}) is props


def test_one_header_is_added_and_the_others_stay_octet_by_octet() -> None:
    props = message(HEADERS_AS_THEY_CAME)
    offset = b"\x0fx-stream-offsetI\0\0\0\7"
    assert with_header(props, scan(props), "x-stream-offset", 7) == message(HEADERS_AS_THEY_CAME + offset)
    assert with_header(message(None), scan(message(None)), "x-stream-offset", 7) == message(offset)


def test_an_existing_header_is_replaced() -> None:
    props = message(b"\1aV" + ODD + b"\1aV")
    assert with_header(props, scan(props), "a", True) == message(ODD + b"\1at\1")


def test_the_whole_table_is_replaced_or_dropped() -> None:
    headers: FieldTable = {"x-death": [{"count": 1, "time": Timestamp(7)}]}
    for props in (message(HEADERS_AS_THEY_CAME), message(None)):
        changed = with_headers(props, scan(props), headers)
        assert Properties.decode(changed).headers == headers
        assert with_headers(changed, scan(changed), None) == message(None)


def test_expiration_is_removed_and_headers_can_change_with_the_same_scan() -> None:
    props = message(HEADERS_AS_THEY_CAME)
    found = scan(props)
    shorter = without_expiration(props, found)
    assert Properties.decode(shorter).expiration is None
    assert Properties.decode(shorter).headers == found.headers
    changed = with_headers(shorter, found, {"x": "y"})
    expected = Properties(content_type="t", content_encoding="e", delivery_mode=2, priority=5, headers={"x": "y"})
    assert Properties.decode(changed) == expected
    assert without_expiration(shorter, scan(shorter)) is shorter
