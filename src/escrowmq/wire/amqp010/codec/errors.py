"""The errors of the AMQP 0-10 codec."""

from __future__ import annotations


class CodecError(Exception):
    """Octets that are not what AMQP 0-10 requires at their place, or a value that has no encoding."""


class UnknownOperation(CodecError):  # noqa: N818 - it says what is unknown
    """A command or a control with a code that the codec does not know. `class_code` and `code` are the two octets."""

    def __init__(self, class_code: int, code: int) -> None:
        super().__init__(f"unknown operation {class_code:#04x} {code:#04x}")
        self.class_code = class_code
        self.code = code
