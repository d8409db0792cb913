"""PUBLISH records are decoded as they were encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.publishing import decode_publish, encode_targets

u32 = st.integers(0, 2**32 - 1)


u64 = st.integers(0, 2**64 - 1)


contents = st.lists(st.binary(max_size=20), min_size=1, max_size=20)


ENVELOPE = Envelope("x", "k", b"header", durable=True)


@given(st.lists(st.tuples(u32, u64), min_size=1, max_size=5), contents)
def test_publishes_are_decoded_as_they_were_encoded(targets: list[tuple[int, int]], contents: list[bytes]) -> None:
    head = encode_targets(targets)
    publish = decode_publish(memoryview(head + b"".join(encode_block(5, ENVELOPE, contents))))
    assert publish.targets == targets
    assert publish.length == len(contents)
    assert publish.block == len(head)


def test_a_run_may_go_to_more_than_65535_queues() -> None:
    targets = [(ident, 1) for ident in range(70_000)]
    head = encode_targets(targets)
    found = decode_publish(head + b"".join(encode_block(1, Envelope("", "q"), [b"x"])))
    assert [tuple(target) for target in found.targets] == targets
