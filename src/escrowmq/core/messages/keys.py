"""The routing keys of stored messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.messages.formats import Format


def with_own_keys(formats: Mapping[int, Format], entries: list[Entry]) -> Iterator[tuple[Envelope, bytes]]:
    """Yield envelopes and contents of `entries`, with the routing key of each message in its envelope."""
    envelope: Envelope | None = None
    keyed: Format | None = None
    for entry in entries:
        if entry.run.envelope is not envelope:
            envelope = entry.run.envelope
            keyed = formats.get(envelope.protocol)
            if keyed is not None and not keyed.keyed:
                keyed = None
        yield (envelope, entry.content) if keyed is None else keyed.single_out(envelope, entry.content)
