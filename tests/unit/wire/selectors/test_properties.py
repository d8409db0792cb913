"""The filters that are lists of required values."""

from __future__ import annotations

import pytest

from escrowmq.wire.selectors.properties import MOST, application_properties_filter, properties_filter
from escrowmq.wire.selectors.values import SelectorError
from tests.unit.wire.selectors.message import Message

MESSAGE = Message(
    {"colour": "blue", "count": 3, "flag": True, "amp": "&x"},
    {"properties.subject": "news.sport", "properties.group-sequence": 4, "properties.user-id": b"me"},
)


@pytest.mark.parametrize(
    ("wanted", "result"),
    [
        ({"subject": "news.sport"}, True),
        ({"subject": "news"}, False),
        ({"subject": "&p:news."}, True),
        ({"subject": "&s:sport"}, True),
        ({"subject": "&s:news"}, False),
        ({"subject": "&p:news.", "group-sequence": 4}, True),
        ({"subject": "&p:news.", "group-sequence": 5}, False),
        ({"group-sequence": 4.0}, True),
        ({"user-id": b"me"}, True),
        ({"to": "x"}, False),
        ({"to": "&p:"}, False),
        ({"to": None}, True),
    ],
)
def test_properties(wanted: dict[str, object], result: bool) -> None:
    assert properties_filter(wanted)(MESSAGE) is result


@pytest.mark.parametrize(
    ("wanted", "result"),
    [
        ({"colour": "blue", "count": 3}, True),
        ({"count": "3"}, False),
        ({"count": True}, False),
        ({"flag": True}, True),
        ({"flag": 1}, False),
        ({"amp": "&&x"}, True),
        ({"count": "&p:3"}, False),
        ({"missing": "x"}, False),
    ],
)
def test_application_properties(wanted: dict[str, object], result: bool) -> None:
    assert application_properties_filter(wanted)(MESSAGE) is result


@pytest.mark.parametrize("wanted", [{}, {"subject": "&x"}, {"subject": "&q:x"}, {"nothing": "x"}])
def test_refused_filters(wanted: dict[str, object]) -> None:
    with pytest.raises(SelectorError):
        properties_filter(wanted)


def test_the_number_of_fields_is_limited() -> None:
    application_properties_filter({str(i): i for i in range(MOST)})
    with pytest.raises(SelectorError, match="between 1 and 16"):
        application_properties_filter({str(i): i for i in range(MOST + 1)})
