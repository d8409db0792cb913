"""Topics take messages of their own type only, or of all if they are mixed."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal
from escrowmq.wire.rocketmq.grpc.kinds import NAMES, TYPES, accepted_types, check_type
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code
from escrowmq.wire.rocketmq.topics import MIXED, TRANSACTION, UNSPECIFIED


@pytest.mark.rule("HALF-7")
@pytest.mark.parametrize("of_topic", [*TYPES, MIXED, UNSPECIFIED])
@pytest.mark.parametrize("of_message", TYPES)
def test_a_type_is_accepted_by_the_same_one_and_by_mixed(of_topic: str, of_message: str) -> None:
    if of_topic in {of_message, MIXED} or (of_topic == UNSPECIFIED and of_message != TRANSACTION):
        check_type(of_topic, of_message)
        assert TYPES[of_message] in accepted_types(of_topic)
    else:
        with pytest.raises(RocketmqRefusal) as caught:
            check_type(of_topic, of_message)
        assert caught.value.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert TYPES[of_message] not in accepted_types(of_topic)


def test_numbers_and_names_belong_together() -> None:
    assert {name: number for number, name in NAMES.items()} == TYPES
