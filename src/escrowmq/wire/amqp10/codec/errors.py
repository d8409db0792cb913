"""The error of the AMQP 1.0 codec."""

from __future__ import annotations


class CodecError(Exception):
    """Octets that are not what AMQP 1.0 requires at their place, or a value that has no encoding."""
