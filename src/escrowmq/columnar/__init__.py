"""Stored contents of many messages as Arrow columns, without a Python object for each message.

`stored_parts` (wire.amqp091.stored) and `message` are the codec for single messages: whatever the octets of a message,
both give the same row. The design is described in docs/internals/bulk.md.
"""
