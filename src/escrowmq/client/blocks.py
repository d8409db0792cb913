"""What a block of messages for `Channel.publish_block` consists of (docs/internals/bulk.md)."""

from __future__ import annotations

from escrowmq.wire.amqp091.blocks import MOST_BYTES, MOST_MESSAGES, build
from escrowmq.wire.amqp091.frames import CONTENT_HEADER_SIZE, FRAME_OVERHEAD
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED
from escrowmq.wire.outbox import LARGE

__all__ = ["CONTENT_HEADER_SIZE", "FRAME_OVERHEAD", "KEYED", "LARGE", "MOST_BYTES", "MOST_MESSAGES", "PACKED", "build"]
