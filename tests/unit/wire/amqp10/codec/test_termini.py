"""Sources, targets, coordinators and lifetime policies survive encoding."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec.composite import encode_composite, resolve
from escrowmq.wire.amqp10.codec.encoding import decode
from escrowmq.wire.amqp10.codec.states import OUTCOME_SYMBOLS, Modified
from escrowmq.wire.amqp10.codec.termini import (
    NEVER,
    Coordinator,
    Declare,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Discharge,
    Source,
    Target,
)
from escrowmq.wire.amqp10.codec.types import Described, Symbol, ULong


@pytest.mark.parametrize(
    "item",
    [
        Source(),
        Source(
            "queue",
            2,
            NEVER,
            60,
            filter={Symbol("apache.org:selector-filter:string"): Described(ULong(0x468C00000004), "a = 1")},
            default_outcome=Modified(delivery_failed=True),
            outcomes=OUTCOME_SYMBOLS,
            capabilities=(Symbol("queue"),),
        ),
        Target(dynamic=True, dynamic_node_properties={Symbol("lifetime-policy"): DeleteOnClose()}),
        Coordinator((Symbol("amqp:local-transactions"),)),
        Declare(),
        Discharge(b"txn", fail=True),
        DeleteOnNoLinks(),
        DeleteOnNoMessages(),
        DeleteOnNoLinksOrMessages(),
    ],
)
def test_termini_survive(item: object) -> None:
    assert resolve(decode(encode_composite(item))[0]) == item


def test_a_commit_says_that_it_does_not_fail() -> None:
    """Artemis rejects a discharge whose second field is absent."""
    encoded = encode_composite(Discharge(b"txn", fail=False))
    assert decode(encoded)[0] == Described(ULong(0x32), [b"txn", False])
    assert resolve(Described(ULong(0x32), [b"txn"])) == Discharge(b"txn", None)


def test_a_source_without_fields_has_the_defaults() -> None:
    assert resolve(Described(ULong(0x28), [])) == Source(None, 0, "session-end", 0)
