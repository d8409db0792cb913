"""Names of topics and groups."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq import names


@pytest.mark.parametrize("name", ["t", "a-b_c", "%RETRY%g", "x" * 127, "RMQ_SYS_TRACE_TOPIC"])
def test_these_are_names_of_topics(name: str) -> None:
    assert names.topic_fault(name) == ""


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 128, "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "a/b", "a\n"])
def test_these_are_none(name: str) -> None:
    assert names.topic_fault(name)


@pytest.mark.parametrize(
    ("name", "valid"), [("g", True), ("", False), ("a b", False), ("x" * 120, True), ("x" * 121, False)]
)
def test_names_of_groups_are_checked(name: str, valid: bool) -> None:
    assert (names.group_fault(name) == "") is valid


def test_a_group_has_a_retry_topic_and_a_dead_letter_topic() -> None:
    assert names.topic_fault(names.retry_topic("x" * names.LONGEST_GROUP)) == ""
    assert names.group_of(names.retry_topic("g")) == "g"
    assert names.group_of(names.dead_letter_topic("g")) == "g"
    assert names.group_of("t") is None


@pytest.mark.parametrize("tag", ["", "a", "x" * 127, "ä" * 127, "\U0001f600" * 63])
def test_these_are_tags(tag: str) -> None:
    assert names.tag_fault(tag) == ""


@pytest.mark.parametrize("tag", ["x" * 128, "\u20ac" * 86, "\U0001f600" * 64, "\udcff"])
def test_a_tag_that_can_be_no_routing_key_is_none(tag: str) -> None:
    assert names.tag_fault(tag)
