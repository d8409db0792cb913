"""The base class of all generated methods of `spec.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self


class Method(ABC):
    """One AMQP 0-9-1 method with its arguments. Reserved arguments are left out: sent as zero, ignored when received.

    Two methods are equal if they are of the same class and all arguments are equal.
    """

    __slots__ = ()

    CLASS_ID: ClassVar[int]
    METHOD_ID: ClassVar[int]
    INDEX: ClassVar[int]
    """`CLASS_ID << 16 | METHOD_ID`: the first four bytes of the payload as one number."""
    NAME: ClassVar[str]
    """The name in the specification, for example `"basic.publish"`."""
    HAS_CONTENT: ClassVar[bool]
    """Whether a content header and body frames follow."""
    SYNCHRONOUS: ClassVar[bool]
    """Whether the specification calls it synchronous: it is a request that waits for its answer, or such an answer."""
    TO_SERVER: ClassVar[bool]
    """Whether a server may receive it."""
    TO_CLIENT: ClassVar[bool]
    """Whether a client may receive it."""
    FIELDS: ClassVar[tuple[tuple[str, str], ...]]
    """(attribute, wire type) in wire order, without reserved arguments."""

    @abstractmethod
    def encode(self) -> bytes:
        """Return the payload of the method frame, from the class id on.

        Raises ValueError if an argument does not fit its field (a short string over 255 bytes, a number out of
        range), TypeError for a table value that has no tag.
        """

    @classmethod
    @abstractmethod
    def decode(cls, payload: bytes, at: int = 4) -> Self:
        """Read the arguments, which begin at `at` (after the ids) and end with `payload`.

        Raises SyntaxFault (502) if they are malformed, too short or too long.
        """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name, _ in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        # Long strings carry SASL responses and secrets; they must never reach a log.
        shown = (
            f"{name}=<{len(getattr(self, name))} bytes>" if kind == "longstr" else f"{name}={getattr(self, name)!r}"
            for name, kind in self.FIELDS
        )
        return f"{type(self).__name__}({', '.join(shown)})"
