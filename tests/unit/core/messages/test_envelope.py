"""Envelopes are restored from the journal unchanged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Death, Envelope

names = st.text(max_size=40)


times = st.integers(0, 2**63 - 1)


deaths = st.builds(
    Death,
    names,
    st.sampled_from(["rejected", "expired", "maxlen", "delivery_limit"]),
    st.integers(1, 2**40),
    times,
    names,
    st.lists(names, max_size=3).map(tuple),
    st.none() | times,
)


envelopes = st.builds(
    Envelope,
    names,
    names,
    st.binary(max_size=50),
    protocol=st.integers(0, 255),
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl=st.none() | times,
    extra_keys=st.lists(names, max_size=4).map(tuple),
    deaths=st.lists(deaths, max_size=3).map(tuple),
)


FIELDS = ("exchange", "routing_key", "header", "protocol", "durable", "priority", "ttl", "extra_keys", "deaths")


@given(envelopes)
def test_an_encoded_envelope_is_decoded_unchanged(envelope: Envelope) -> None:
    read = Envelope.decode(envelope.encode())
    assert [getattr(read, name) for name in FIELDS] == [getattr(envelope, name) for name in FIELDS]
    assert read.encode() == envelope.encode()


def test_the_encoding_of_an_envelope_is_fixed() -> None:
    death = Death("q", "expired", 1, 2, "x", ("k", "c"), None)
    envelope = Envelope(
        "x", "k", b"\x00\x00", protocol=91, durable=True, priority=5, extra_keys=("c",), deaths=(death,)
    )
    assert envelope.encode().hex(" ") == (
        "5b 07 05 ff ff ff ff ff ff ff ff "  # protocol, flags, priority, no time to live
        "01 00 78 01 00 6b 02 00 00 00 00 00 "  # exchange, routing key, header
        "01 00 01 00 63 "  # extra keys
        "01 00 "  # deaths: count, time, time to live, queue, reason, exchange, routing keys
        "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff "
        "01 00 71 07 00 65 78 70 69 72 65 64 01 00 78 02 00 01 00 6b 01 00 63"
    )


def test_a_time_to_live_of_zero_differs_from_none() -> None:
    assert Envelope.decode(Envelope("", "q", ttl=0).encode()).ttl == 0
    assert Envelope.decode(Envelope("", "q").encode()).ttl is None


def test_text_that_is_not_valid_utf8_survives() -> None:
    assert Envelope.decode(Envelope("\udcff", "k\udc80").encode()).routing_key == "k\udc80"
