"""Comparisons of settings, and what they tell."""

from __future__ import annotations

from escrowmq.replica.engines.errors import SettingsRefused
from escrowmq.replica.engines.settings import at_least, exactly


def test_a_right_setting_is_no_fault() -> None:
    assert exactly("the topic t", "cleanup.policy", "delete", "delete") == []
    assert at_least("the topic t", "replication.factor", 3, 3) == []


def test_a_fault_names_the_setting_the_value_and_the_need() -> None:
    (fault,) = exactly("the topic t", "retention.ms", "604800000", "-1")
    assert str(fault) == "the topic t has retention.ms = 604800000, and replication needs -1"


def test_a_smaller_number_is_a_fault() -> None:
    (fault,) = at_least("the stream s", "num_replicas", 1, 3)
    assert str(fault) == "the stream s has num_replicas = 1, and replication needs 3 or more"


def test_a_negative_limit_stands_for_none_where_that_is_so() -> None:
    assert at_least("the stream s", "max_msg_size", -1, 100, unlimited=True) == []
    assert at_least("the stream s", "max_msg_size", 99, 100, unlimited=True)
    assert at_least("the topic t", "max.message.bytes", -1, 100)


def test_truth_values_are_shown_as_the_engines_write_them() -> None:
    (fault,) = exactly("the stream s", "deny_delete", found=False, needed=True)
    assert str(fault) == "the stream s has deny_delete = false, and replication needs true"


def test_a_refusal_tells_all_faults_in_one_line() -> None:
    faults = exactly("a", "x", 1, 2) + exactly("a", "y", 3, 4)
    assert str(SettingsRefused(faults)) == "a has x = 1, and replication needs 2; a has y = 3, and replication needs 4"
