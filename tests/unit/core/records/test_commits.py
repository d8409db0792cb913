"""COMMIT records are decoded as they were encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.commits import decode_commit, encode_commit
from escrowmq.core.records.kinds import Kind

u64 = st.integers(0, 2**64 - 1)


@given(u64, st.lists(st.tuples(st.sampled_from(Kind), st.lists(st.binary(max_size=9), max_size=3)), max_size=5))
def test_commits_are_decoded_as_they_were_encoded(branch: int, operations: list[tuple[Kind, list[bytes]]]) -> None:
    parts, offsets = encode_commit(branch, operations)
    record = b"".join(parts)
    read, found = decode_commit(memoryview(record))
    read_operations = list(found)
    assert read == branch
    assert [(kind, bytes(payload)) for kind, _, payload in read_operations] == [
        (kind, b"".join(payload)) for kind, payload in operations
    ]
    assert [offset for _, offset, _ in read_operations] == offsets
    for offset, (_, payload) in zip(offsets, operations, strict=True):
        assert record[offset:].startswith(b"".join(payload))
