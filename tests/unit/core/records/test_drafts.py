"""A record drafted without positions equals the record that is encoded at once."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.drafts import Draft
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import decode_publish, encode_targets
from escrowmq.core.records.settling import encode_settle


@pytest.mark.parametrize("size", [1, 5000, 40_000, 2 << 20])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_it_equals_the_record_encoded_at_once(size: int, count: int) -> None:
    if size * count > 8 << 20:
        return
    bases = {1: 100, 7: 5000}
    operations = []
    draft, offsets = Draft(), []
    draft.begin(4)
    for i in range(5):
        envelope = Envelope("", f"k{i}", b"\0\0")
        contents = [bytes([i]) * size] * count
        targets = [(1, 3 * i), (7, i)][: 1 + i % 2]
        timeless = i % 2 == 0
        offsets.append(
            draft.publish(targets, encode_block(5 if timeless else 9, envelope, contents), timeless=timeless)
        )
        head = encode_targets([(queue, bases[queue] + at) for queue, at in targets])
        operations.append((Kind.PUBLISH, [head, *encode_block(9, envelope, contents)]))
        settle = encode_settle(7, Outcome.ACCEPTED, [(1, 2)])
        draft.add(Kind.SETTLE, settle)
        operations.append((Kind.SETTLE, [settle]))
    parts, places = encode_commit(4, operations)
    found = b"".join(draft.finish(bases, 9))
    assert found == b"".join(parts)
    assert len(found) == draft.size
    blocks = [at + decode_publish(found[at:]).block for at in places[::2]]
    assert offsets == blocks


def test_large_contents_are_not_copied() -> None:
    draft, content = Draft(), bytes(1 << 20)
    draft.begin(1)
    draft.publish([(1, 0)], encode_block(1, Envelope("", "q"), [content]))
    assert any(part is content for part in draft.finish({1: 1}, 1))


def drafted(timeless: bool = False) -> Draft:
    """Return a draft of 20,000 publishes to two queues, in operations of several lengths."""
    draft = Draft()
    draft.begin(4)
    for i in range(20_000):
        block = encode_block(5, Envelope("", "k" * (i % 3), b"\0\0"), [b"x"])
        draft.publish([(1 + i % 2, i)], block, timeless=timeless)
    return draft


@pytest.mark.parametrize("timeless", [False, True])
@pytest.mark.parametrize("bases", [{1: 10, 2: 20}, {1: 10, 2: 21}, {1: 11, 2: 21}])
@pytest.mark.parametrize("time", [9, 10])
def test_what_was_written_beforehand_changes_nothing(bases: dict[int, int], time: int, *, timeless: bool) -> None:
    draft = drafted(timeless)
    for _ in draft.fill({1: 10, 2: 20}, 9):
        pass
    draft.begin(5)
    draft.publish([(1, 20_000)], encode_block(5, Envelope("", "late", b"\0\0"), [b"x"]))
    whole = drafted(timeless)
    whole.begin(5)
    whole.publish([(1, 20_000)], encode_block(5, Envelope("", "late", b"\0\0"), [b"x"]))
    assert b"".join(draft.finish(bases, time)) == b"".join(whole.finish(bases, time))


@pytest.mark.rule("FAIR-1")
def test_the_end_writes_only_positions_that_have_changed() -> None:
    draft = drafted()
    pieces = list(draft.fill({1: 10, 2: 20}, 9))
    assert sum(pieces) == 20_000
    assert max(pieces) <= 5001
    assert sum(draft.fill({1: 10, 2: 20}, 10)) == 0
    assert sum(draft.fill({1: 10, 2: 21}, 10)) == 10_000
