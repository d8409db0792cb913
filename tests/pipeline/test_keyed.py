"""The audit names the routing key of each message, also where messages of a run have routing keys of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_targets
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from tests.pipeline.direct import audited
from tests.pipeline.journals import Scribe

KEYED_RUN = Envelope("x", "", protocol=KEYED, durable=True)
PACKED_RUN = Envelope("x", "shared", protocol=PACKED, durable=True)


@pytest.mark.parametrize("parts", [1, 3])
def test_each_message_has_its_routing_key_and_the_size_of_its_body(tmp_path: Path, parts: int) -> None:
    keys = ["a.1", "b", "a.1", "", "é"]
    contents = [join(key.encode(), pack(b"\0\0", b"x" * n)) for n, key in enumerate(keys, 1)]
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "q")
        scribe.queue(2, "other")
        for envelope, some, targets in (
            (KEYED_RUN, contents, [(1, 1), (2, 1)]),
            (PACKED_RUN, [pack(b"\0\0", b"12345678")] * 2, [(1, 6)]),
        ):
            scribe.append(Kind.PUBLISH, encode_targets(targets), *encode_block(7, envelope, some))
    found = audited(tmp_path, parts)
    assert found.wrong == []
    for name, more in (("q", [("shared", 8)] * 2), ("other", [])):
        rows = sorted((row for row in found.messages if row["queue"] == name), key=lambda row: row["position"])
        assert [(row["routing_key"], row["bytes"]) for row in rows] == [
            *((key, n) for n, key in enumerate(keys, 1)),
            *more,
        ]
        assert {row["exchange"] for row in rows} == {"x"}
