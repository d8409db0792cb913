"""Structs: size, code and presence flags."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.spec import MessageProperties, QueueDelete, ReplyTo, XaResult, Xid
from escrowmq.wire.amqp010.codec.structs import STRUCTS

XID = Xid(0x0102, b"gg", b"b")
XID_OCTETS = b"\x00\x00\x00\x0d\x06\x04\x07\x00\x00\x00\x01\x02\x02gg\x01b"


def test_an_xid_has_the_form_of_the_errata() -> None:
    assert XID.write() == XID_OCTETS
    assert Xid.read(XID_OCTETS, 0, len(XID_OCTETS)) == (XID, len(XID_OCTETS))


def test_a_struct_without_code_has_only_its_size() -> None:
    octets = ReplyTo("e", "k").write()
    assert octets == b"\x00\x06\x03\x00\x01e\x01k"
    assert ReplyTo.read(b"." + octets, 1, 9) == (ReplyTo("e", "k"), 9)


@pytest.mark.parametrize("end", range(len(XID_OCTETS)))
def test_a_struct_that_is_cut_off_is_refused(end: int) -> None:
    with pytest.raises(CodecError):
        Xid.read(XID_OCTETS[:end], 0, end)


def test_a_struct_in_the_place_of_another_one_is_refused() -> None:
    octets = XaResult(0).write()
    with pytest.raises(CodecError, match="another struct"):
        Xid.read(octets, 0, len(octets))


def test_a_struct_that_is_too_long_for_its_size_is_refused() -> None:
    with pytest.raises(CodecError):
        ReplyTo("e" * 256).write()


def test_the_flags_of_unknown_fields_are_refused() -> None:
    with pytest.raises(CodecError, match="do not fill"):
        XaResult.decode(b"\x02\x00", 0, 2)


def test_an_absent_field_is_none_and_an_absent_bit_false() -> None:
    assert QueueDelete.decode(b"\x00\x00", 0, 2) == QueueDelete(None, if_unused=False, if_empty=False)


def test_the_representation_shows_the_present_fields() -> None:
    assert repr(QueueDelete("q", if_empty=True)) == "QueueDelete(queue='q', if_empty=True)"


def test_objects_of_different_classes_differ() -> None:
    assert XaResult(0) != Xid(0)
    assert XaResult(0) != XaResult(1)


def test_structs_are_found_by_their_code() -> None:
    assert STRUCTS[0x0403] is MessageProperties
    assert STRUCTS[0x0604] is Xid
