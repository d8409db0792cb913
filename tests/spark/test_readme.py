"""The README's Spark example works as printed."""

from __future__ import annotations

from tests.broker import wait_until
from tests.docs.pages import blocks
from tests.spark.desk import Desk
from tests.unit.sources import ROOT


def test_the_example_of_the_readme_works(desk: Desk) -> None:
    for name in ("orders", "invoices"):
        with desk.escrow.connection.channel() as channel:
            channel.queue_declare(name, durable=True)
    desk.put("orders", [b"one coffee", b"two teas"])
    (example,) = [block for block in blocks(ROOT / "README.md", "py") if '"checkpoint"' in block.text]
    text = example.text.replace('"checkpoint"', repr(str(desk.folder / "checkpoint")))
    exec(compile(text, "README.md", "exec"), {"spark": desk.spark})
    (query,) = desk.spark.streams.active
    try:
        wait_until(lambda: desk.escrow.progress(query.id) == 0 or not query.isActive, 100, "the first epoch")
        assert query.isActive, query.exception()
        assert desk.get("invoices") == [b"to be paid: one coffee", b"to be paid: two teas"]
    finally:
        query.stop()
