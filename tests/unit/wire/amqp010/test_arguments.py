"""Arguments of Qpid, as the core knows them."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010.arguments import plain, queue_arguments
from escrowmq.wire.amqp010.codec.spec import Xid
from escrowmq.wire.amqp010.codec.types import Array, Char, Float, UInt32, UnknownStruct, Uuid


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"qpid.max_count": UInt32(5)}, {"x-max-length": 5, "x-overflow": "reject-publish"}),
        ({"qpid.max_size": "500"}, {"x-max-length-bytes": 500, "x-overflow": "reject-publish"}),
        ({"qpid.max_count": 5, "qpid.policy_type": "ring"}, {"x-max-length": 5, "x-overflow": "drop-head"}),
        ({"qpid.max_count": 5, "qpid.policy_type": "odd"}, {"x-max-length": 5, "x-overflow": "reject-publish"}),
        ({"qpid.max_count": 0}, {}),
        ({"qpid.policy_type": "ring"}, {}),
        ({"qpid.priorities": 10}, {"x-max-priority": 9}),
        ({"x-qpid-priorities": "4"}, {"x-max-priority": 3}),
        ({"qpid.priorities": 1}, {}),
        ({"qpid.max_count": 5, "x-max-length": 7}, {"x-max-length": 7, "x-overflow": "reject-publish"}),
        ({"qpid.file_size": 24, "qpid.file_count": 8}, {}),
        (None, {}),
    ],
)
def test_limits_and_priorities_have_the_meaning_that_they_have_in_qpid(
    given: dict[str, Any] | None, expected: dict[str, object]
) -> None:
    kept = {name: value for name, value in (given or {}).items() if not name.startswith("x-max")}
    assert queue_arguments(given) == {**expected, **kept}


def test_values_are_stored_as_values_of_python() -> None:
    given = {
        "int": UInt32(1),
        "float": Float(1.5),
        "text": Char("c"),
        "octets": Uuid(bytes(16)),
        "void": None,
        "bit": True,
        "array": Array([1, 2], code=0x01),
        "map": {"list": [UInt32(3)]},
    }
    found = plain(given)
    assert found == {**given, "array": [1, 2]}
    assert [type(value) for value in found.values()] == [int, float, str, bytes, type(None), bool, list, dict]


@pytest.mark.parametrize("value", [Xid(1, b"g", b"b"), UnknownStruct(0x9999, b"")])
def test_a_struct_is_refused(value: object) -> None:
    with pytest.raises(BrokerError) as refused:
        plain({"nested": [value]})
    assert refused.value.condition is Condition.INVALID_ARGUMENT
