"""Spark compares offsets as text, so equal offsets must have equal text."""

from __future__ import annotations

import json

import pytest

from escrowmq.spark import offsets
from escrowmq.spark.errors import OptionError


def test_encoded_offsets_are_sorted_and_can_be_decoded() -> None:
    given = offsets.encode("etl", {"b": 2, "a": 1})
    assert json.dumps(given) == '{"group": "etl", "queues": {"a": 1, "b": 2}}'
    assert json.dumps(given) == json.dumps(offsets.encode("etl", {"a": 1, "b": 2}))
    assert offsets.decode("etl", json.loads(json.dumps(given))) == {"a": 1, "b": 2}
    assert offsets.decode("etl", {}) == {}


def test_offsets_of_another_group_are_refused() -> None:
    with pytest.raises(OptionError, match="the checkpoint belongs to group 'etl', but option group is 'other'"):
        offsets.decode("other", offsets.encode("etl", {"a": 1}))


def test_offsets_record_the_ids_of_streams() -> None:
    given = offsets.encode("", {"b": 2, "a": 1}, {"b": 7, "a": 8})
    assert json.dumps(given) == '{"group": "", "queues": {"a": 1, "b": 2}, "streams": {"a": 8, "b": 7}}'
    assert offsets.decode("", given) == {"a": 1, "b": 2}
    assert offsets.streams(given) == {"b": 7, "a": 8}
    assert offsets.streams(offsets.encode("", {"a": 1})) == {}
