"""The envelope of a publish."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL, Form, Forms, with_reply_to
from escrowmq.wire.amqp091.shape import Values
from escrowmq.wire.amqp091.spec import BasicPublish
from escrowmq.wire.amqp091.table import FieldValue

METHOD = BasicPublish("x", "k").encode()


def form(properties: Properties | bytes, method: bytes = METHOD) -> Form:
    props = properties if isinstance(properties, bytes) else properties.encode()
    return Forms().find(1, method, props)


def test_addresses_and_packed_forms_of_a_connection_take_little_memory() -> None:
    tracemalloc.start()
    try:
        forms = Forms()
        for number in range(6000):
            method = BasicPublish("x" * 255, f"{number:0255}").encode()
            forms.find(1, method, b"\0\0")
            address = forms.address(1, method)
            for priority in range(3):
                forms.packed(address, Values(durable=False, priority=priority, expiration=b""))
        assert tracemalloc.get_traced_memory()[1] < 24_000_000
    finally:
        tracemalloc.stop()


class TestEnvelope:
    def test_the_envelope_has_the_values_that_the_core_needs(self) -> None:
        props = Properties(delivery_mode=2, priority=7, expiration="250", headers={"CC": ["a"], "h": 1})
        found = form(props, BasicPublish("x", "k", True).encode())
        envelope = found.envelope
        assert (envelope.exchange, envelope.routing_key, envelope.protocol) == ("x", "k", PROTOCOL)
        assert (envelope.durable, envelope.priority, envelope.ttl, envelope.extra_keys) == (True, 7, 250, ("a",))
        assert envelope.header == props.encode()
        assert found.mandatory

    def test_a_message_may_have_no_properties(self) -> None:
        found = form(b"\x00\x00")
        envelope = found.envelope
        assert (envelope.durable, envelope.priority, envelope.ttl, envelope.extra_keys) == (False, 0, None, ())
        assert (found.mandatory, found.plain) == (False, True)

    @pytest.mark.parametrize(("mode", "durable"), [(None, False), (0, False), (1, False), (2, True), (3, False)])
    def test_only_delivery_mode_2_is_persistent(self, mode: int | None, durable: bool) -> None:
        assert form(Properties(delivery_mode=mode)).envelope.durable is durable

    def test_bcc_is_removed_from_the_headers(self) -> None:
        found = form(Properties(headers={"CC": ["a", "b"], "BCC": ["c"], "h": 1}))
        assert found.envelope.extra_keys == ("a", "b", "c")
        assert Properties.decode(found.envelope.header).headers == {"CC": ["a", "b"], "h": 1}
        assert not found.plain

    @pytest.mark.parametrize("name", ["CC", "BCC"])
    @pytest.mark.parametrize("value", ["a", 1, {"a": 1}, [1], ["a", b"\xff"], None])
    def test_cc_must_be_a_list_of_strings(self, name: str, value: FieldValue) -> None:
        with pytest.raises(BrokerError, match=name) as refused:
            form(Properties(headers={name: value}))
        assert refused.value.condition is Condition.PRECONDITION_FAILED

    @pytest.mark.parametrize("keys", [["k" * 256], ["ü" * 128]])
    def test_cc_keys_have_at_most_255_bytes(self, keys: list[FieldValue]) -> None:
        """Longer keys cannot be bound, and would not fit into the journal."""
        with pytest.raises(BrokerError, match="255 bytes") as refused:
            form(Properties(headers={"CC": keys}))
        assert refused.value.condition is Condition.PRECONDITION_FAILED

    def test_a_message_may_have_many_cc_keys(self) -> None:
        keys: list[FieldValue] = ["k" * 255] * 1000
        envelope = form(Properties(headers={"CC": keys})).envelope
        assert len(envelope.encode()) > 255_000
        assert form(Properties(headers={"CC": []})).envelope.extra_keys == ()


class TestExpiration:
    @pytest.mark.parametrize(
        ("text", "ttl"),
        [("0", 0), ("1", 1), ("007", 7), ("4294967296", 4_294_967_296), ("315360000000", 315_360_000_000)],
    )
    def test_the_expiration_is_in_milliseconds(self, text: str, ttl: int) -> None:
        assert form(Properties(expiration=text)).envelope.ttl == ttl

    @pytest.mark.parametrize(
        "text",
        ["", " ", "-1", "+1", "1.5", "1 ", "0x1", "1e3", "soon", "٣", "²", "315360000001", "9" * 255, "0" * 200 + "x"],
    )
    def test_an_invalid_expiration_is_refused(self, text: str) -> None:
        with pytest.raises(BrokerError, match="invalid expiration") as refused:
            form(Properties(expiration=text))
        assert refused.value.condition is Condition.PRECONDITION_FAILED

    @given(st.text(max_size=60))
    def test_any_expiration_is_accepted_or_refused(self, text: str) -> None:
        try:
            ttl = form(Properties(expiration=text)).envelope.ttl
        except BrokerError:
            assert not text.isdecimal() or not text.isascii() or int(text) > 315_360_000_000
        else:
            assert ttl == int(text)


class TestForms:
    def test_the_cache_of_long_differing_headers_is_small(self) -> None:
        forms = Forms()
        for i in range(100):
            forms.find(1, METHOD, Properties(headers={"h": f"{i}" * 10_000}).encode())
        assert 0 < sum(len(props) for _, _, props in forms._forms) <= 256 * 1024
        first = Properties(headers={"h": "99" * 10_000}).encode()
        assert forms.find(1, METHOD, first) is forms.find(1, METHOD, first)

    def test_each_distinct_publish_has_one_form(self) -> None:
        forms = Forms()
        props = Properties(delivery_mode=2).encode()
        first = forms.find(1, METHOD, props)
        assert forms.find(1, bytes(bytearray(METHOD)), bytes(bytearray(props))) is first
        others = [
            forms.find(2, METHOD, props),
            forms.find(1, BasicPublish("x", "other").encode(), props),
            forms.find(1, METHOD, b"\x00\x00"),
        ]
        assert first not in others
        assert first.address is others[2].address
        assert first.address is not others[0].address

    def test_the_number_of_cached_forms_is_bounded(self) -> None:
        forms = Forms()
        for i in range(20_000):
            forms.find(1, BasicPublish("x", str(i)).encode(), b"\x00\x00")
            forms.find(1, METHOD, Properties(message_id=str(i)).encode())
        assert len(forms._forms) <= 512 + len(forms.addresses)
        assert len(forms.addresses) <= 16_384

    def test_malformed_publishes_are_refused_each_time(self) -> None:
        forms = Forms()
        for _ in range(2):
            with pytest.raises(SyntaxFault):
                forms.find(1, METHOD[:-1], b"\x00\x00")
            with pytest.raises(SyntaxFault):
                forms.find(1, METHOD, b"\x80")
            with pytest.raises(BrokerError):
                forms.find(1, METHOD, Properties(expiration="x").encode())

    def test_immediate_is_not_implemented(self) -> None:
        with pytest.raises(SyntaxFault, match="immediate=true") as fault:
            form(b"\x00\x00", BasicPublish("x", "k", False, True).encode())
        assert fault.value.code == codes.NOT_IMPLEMENTED


def test_a_direct_reply_to_is_replaced() -> None:
    props = Properties(content_type="t", reply_to="amq.rabbitmq.reply-to", headers={"h": [1]}, app_id="a").encode()
    expected = Properties(content_type="t", reply_to="elsewhere", headers={"h": [1]}, app_id="a").encode()
    assert with_reply_to(props, "elsewhere") == expected
