"""docs/internals/bulk.md against the code: methods, layout, and the bytes of its example."""

from __future__ import annotations

import re
from array import array

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.reservations.reading import Batch, Shared
from escrowmq.wire.amqp091 import blocks as publish_blocks
from escrowmq.wire.amqp091 import bulk, spec
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from tests.docs.pages import blocks
from tests.harness.blocks import block_of
from tests.unit.sources import ROOT

PAGE = ROOT / "docs" / "internals" / "bulk.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODES = {"bytes": "4s", "u16": "H", "u32": "I", "u64": "Q"}


def test_methods() -> None:
    found = re.findall(r"^\| `(escrow\.[\w-]+)` \| (\d+) \|(.*)\|$", TEXT, re.MULTILINE)
    shown = {name: (int(number), re.findall(r"`(\w+)` (\w+)", fields)) for name, number, fields in found}
    assert shown == {
        kind.NAME: (kind.METHOD_ID, list(kind.FIELDS)) for kind in spec.METHODS.values() if kind.CLASS_ID == 240
    }
    assert [name for name, _, fields in found if "; content" in fields] == ["escrow.read-ok", "escrow.publish"]


def test_head() -> None:
    head = TEXT.split("### Head")[1].split("### Columns")[0]
    fields = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", head, re.MULTILINE)
    assert "<" + "".join(CODES[kind] for _, _, kind in fields) == bulk.HEAD.format
    assert [int(at) for at, _, _ in fields] == [0, 4, 6, 8, 16, 20, 24, 28]
    assert sum(int(size) for _, size, _ in fields) == bulk.HEAD.size


def test_head_of_blocks() -> None:
    fields = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", TEXT.split("## Blocks")[1], re.MULTILINE)
    assert "<" + "".join(CODES[kind] for _, _, kind in fields) == publish_blocks.HEAD.format
    assert [int(at) for at, _, _ in fields] == [0, 4, 6, 8, 12]
    assert f"1 to {publish_blocks.MOST_MESSAGES} |" in TEXT


def test_example_of_a_block() -> None:
    sent = [("k.1", Properties(message_id="m1").encode(), body) for body in (b"a", b"b")]
    (block,) = blocks(PAGE, "block")
    assert b"".join(bytes.fromhex(line[6:53]) for line in block.text.splitlines()) == block_of(*sent)


def test_example() -> None:
    envelope = Envelope("", "q", Properties(delivery_mode=2).encode(), protocol=PROTOCOL, durable=True)
    runs = [Shared(1, envelope, 5, True), Shared(2, envelope, 6, False)]
    data = bulk.encode(Batch(7, 9, array("Q", [40, 41]), array("I", [1, 2]), [b"abc"], runs))
    (block,) = blocks(PAGE, "bulk")
    shown = b"".join(bytes.fromhex(line[6:53]) for line in block.text.splitlines())
    assert shown == data
    first, second = bulk.decode(shown).messages()
    assert (first.number, first.position, first.routing_key, first.redelivered, first.body) == (7, 40, b"q", True, b"a")
    assert (second.number, second.time, second.redelivered, second.body) == (8, 6000, False, b"bc")
