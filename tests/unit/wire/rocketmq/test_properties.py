"""The properties of messages of RocketMQ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.rocketmq.properties import applications, delay_of, kind_in, kind_of, parse, render, value_of, whole

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)


@given(st.dictionaries(NAMES, NAMES | st.just("")))
def test_properties_come_back_as_they_were(properties: dict[str, str]) -> None:
    assert parse(render(properties)) == properties
    for name, value in properties.items():
        assert value_of(render(properties), name) == value


@given(st.binary())
def test_any_octets_are_read(data: bytes) -> None:
    found = parse(data)
    assert parse(render(found)) == {name: value for name, value in found.items() if "\x01" not in value}


def test_pairs_without_a_value_are_left_out() -> None:
    assert parse(b"a\x01b\x02c\x02\x01d\x02e\x01f") == {"a": "b", "e": "f"}


def test_a_value_with_a_separator_is_left_out() -> None:
    assert render({"a": "x\x02y", "b": "c", "d": "\x01"}) == b"b\x01c\x02"


def test_one_property_is_found_among_others_with_a_similar_name() -> None:
    text = b"XKEYS\x01no\x02KEYS\x01yes\x02KEYSX\x01no\x02"
    assert value_of(text, "KEYS") == "yes"
    assert value_of(text, "EYS") is None
    assert value_of(b"KEYS\x01yes", "KEYS") == "yes"


def test_rocketmqs_own_properties_are_no_user_properties() -> None:
    assert applications({"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "u", "mine": "m"}) == {"mine": "m"}


@pytest.mark.parametrize(
    ("properties", "delay"),
    [
        ({}, None),
        ({"DELAY": "0"}, None),
        ({"DELAY": "1"}, ("after", 1000)),
        ({"DELAY": "18"}, ("after", 7_200_000)),
        ({"DELAY": "99"}, ("after", 7_200_000)),
        ({"DELAY": "-1"}, None),
        ({"DELAY": "x"}, None),
        ({"TIMER_DELIVER_MS": "5"}, ("at", 5)),
        ({"TIMER_DELAY_SEC": "5"}, ("after", 5000)),
        ({"TIMER_DELAY_MS": "5", "DELAY": "1"}, ("after", 5)),
    ],
)
def test_the_delay_is_read_from_every_spelling(properties: dict[str, str], delay: tuple[str, int] | None) -> None:
    assert delay_of(properties) == delay


@pytest.mark.parametrize("text", ["", "-", "1.0", "٣", "1" * 20, None, " 1", "--1"])
def test_other_texts_are_no_numbers(text: str | None) -> None:
    assert whole(text) is None


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "normal"),
        ({"TRAN_MSG": "false"}, "normal"),
        ({"TRAN_MSG": "true", "DELAY": "1"}, "transaction"),
        ({"__SHARDINGKEY": "k"}, "fifo"),
        ({"__SHARDINGKEY": "k", "TIMER_DELAY_SEC": "1"}, "delay"),
    ],
)
def test_properties_tell_the_type_of_a_message(properties: dict[str, str], kind: str) -> None:
    assert kind_of(properties) == kind
    assert kind_in(render(properties)) == kind


@given(st.binary() | st.dictionaries(st.sampled_from(["TRAN_MSG", "DELAY", "__SHARDINGKEY", "x"]), NAMES).map(render))
def test_the_type_is_found_without_reading_all_properties(text: bytes) -> None:
    assert kind_in(text) == kind_of(parse(text))
