"""Faults of the peer that cost more than a command: the session or the connection.

A command that is refused raises BrokerError, and `exceptions.py` has its code.
"""

from __future__ import annotations

from escrowmq.wire.amqp010.codec.spec import CloseCode, DetachCode


class ConnectionFault(Exception):  # noqa: N818 - "fault" is the term for an error of the peer
    """The connection ends with `connection.close`. `text` says what was wrong."""

    def __init__(self, text: str, code: CloseCode = CloseCode.FRAMING_ERROR) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class SessionFault(Exception):  # noqa: N818
    """The session ends with `session.detached`. `text` is for the log only, since the control has none."""

    def __init__(self, code: DetachCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
