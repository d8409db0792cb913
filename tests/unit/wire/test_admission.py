"""The table of filters of queues."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.admission import ADMISSIONS
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.sections import APPLICATION_PROPERTIES, encode_section
from escrowmq.wire.amqp10.codec.types import Described, Symbol
from escrowmq.wire.amqp10.publication import PROTOCOL

FILTER = "x-escrowmq-filter"
SELECTOR = "apache.org:selector-filter:string"


def selector(expression: str) -> bytes:
    return encode({Symbol("s"): Described(Symbol(SELECTOR), expression)})


def test_a_filter_examines_the_content_of_messages() -> None:
    admits = ADMISSIONS[FILTER](selector("n > 2 AND JMSXDeliveryCount = 1"))
    contents = [encode_section(APPLICATION_PROPERTIES, {"n": n}) for n in (2, 3)]
    assert [admits(Envelope("x", "k", protocol=PROTOCOL), content) for content in contents] == [False, True]
    assert not admits(Envelope("x", "k", protocol=PROTOCOL), b"malformed")


@pytest.mark.parametrize("value", [b"", b"\x40", b"\xc1\x01", 5, None, selector("n >")])
def test_an_invalid_filter_is_refused(value: object) -> None:
    with pytest.raises(BrokerError, match=FILTER) as caught:
        ADMISSIONS[FILTER](value)
    assert caught.value.condition is Condition.PRECONDITION_FAILED
