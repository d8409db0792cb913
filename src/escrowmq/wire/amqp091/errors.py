"""Errors of AMQP 0-9-1: the fault that decoders raise, and the reply codes for the core's refusals."""

from __future__ import annotations

from typing import Final, NamedTuple

from escrowmq.core.conditions import Condition
from escrowmq.wire.amqp091 import codes


class SyntaxFault(Exception):  # noqa: N818 - "fault" is the term for an error of the peer
    """The peer sent bytes that are not valid AMQP 0-9-1. It always closes the connection.

    `code` is the reply code (501 frame error, 502 syntax error, 503, 504, 505, 540). `text` says what was wrong.
    `index` is the method that caused it (`Method.INDEX`), or 0 if no particular method did.
    """

    __slots__ = ("code", "index", "text")

    def __init__(self, code: int, text: str, index: int = 0) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.index = index

    def __str__(self) -> str:
        return reply_text(self.code, self.text)


class Reply(NamedTuple):
    """The reply code for a refusal. A `hard` one closes the connection, any other only the channel."""

    code: int
    name: str
    hard: bool


def _reply(code: int, *, hard: bool | None = None) -> Reply:
    return Reply(code, codes.REPLY_NAMES[code], code in codes.HARD_ERRORS if hard is None else hard)


REPLIES: Final[dict[Condition, Reply]] = {
    Condition.NOT_FOUND: _reply(codes.NOT_FOUND),
    Condition.ACCESS_REFUSED: _reply(codes.ACCESS_REFUSED),
    Condition.RESOURCE_LOCKED: _reply(codes.RESOURCE_LOCKED),
    Condition.PRECONDITION_FAILED: _reply(codes.PRECONDITION_FAILED),
    # 0-9-1 has no code for a bad argument; RabbitMQ's clients expect this one.
    Condition.INVALID_ARGUMENT: _reply(codes.PRECONDITION_FAILED),
    Condition.NOT_ALLOWED: _reply(codes.NOT_ALLOWED),
    Condition.NOT_IMPLEMENTED: _reply(codes.NOT_IMPLEMENTED),
    # The next three are hard in the specification. Here they concern one branch or one transaction, which belongs to
    # one channel, so the other channels of the connection stay open (TX-13, DTX-3).
    Condition.ILLEGAL_STATE: _reply(codes.COMMAND_INVALID, hard=False),
    Condition.COMMAND_INVALID: _reply(codes.COMMAND_INVALID, hard=False),
    Condition.LIMIT_EXCEEDED: _reply(codes.RESOURCE_ERROR, hard=False),
    # Hard in the specification, too, but it concerns one queue alone.
    Condition.UNAVAILABLE: _reply(codes.INTERNAL_ERROR, hard=False),
    Condition.INTERNAL: _reply(codes.INTERNAL_ERROR),
}

_MAX_SHORT_STRING: Final = 255


def reply_text(code: int, text: str) -> str:
    """`"PRECONDITION_FAILED - text"`, cut at a character so that it fits a short string (255 bytes of UTF-8).

    An unknown code is written as a number. Lone surrogates become question marks.
    """
    name = codes.REPLY_NAMES.get(code, str(code))
    encoded = f"{name} - {text}".encode("utf-8", "replace")
    return encoded[:_MAX_SHORT_STRING].decode("utf-8", "ignore")
