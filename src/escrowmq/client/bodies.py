"""Take the bodies of a bulk publish in chunks from a list, another iterable, or an Arrow column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Final, Literal

from escrowmq.client.errors import ProgrammingError

COUNT: Final = 2048
"""The number of bodies in a chunk."""

_OFFSETS: Final[dict[str, Literal["i", "q"]]] = {
    "binary": "i",
    "string": "i",
    "utf8": "i",
    "large_binary": "q",
    "large_string": "q",
    "large_utf8": "q",
}


def chunks(bodies: Any) -> Iterator[list[bytes]]:
    """Yield the bodies in chunks of at most COUNT.

    Text is encoded as UTF-8; the bytes of any other buffer are used unchanged. An Arrow array or chunked array of
    binaries or strings is read from its buffers, without a scalar for each row.

    Raises:
        ProgrammingError: `bodies` is a single body or an unsupported Arrow type, or an element is null or not a body.
    """
    if hasattr(bodies, "buffers") and hasattr(bodies, "null_count"):
        yield from _arrow(bodies)
    elif hasattr(bodies, "chunks") and hasattr(bodies, "null_count"):
        for chunk in bodies.chunks:
            yield from _arrow(chunk)
    elif isinstance(bodies, bytes | bytearray | memoryview | str):
        raise ProgrammingError("bodies must be a sequence of bodies, not a single body")
    else:
        for chunk in taken(bodies):
            yield chunk if set(map(type, chunk)) == {bytes} else [as_body(body) for body in chunk]


def taken(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the items in lists of at most COUNT."""
    if isinstance(items, list | tuple):
        for at in range(0, len(items), COUNT):
            yield list(items[at : at + COUNT])
        return
    iterator = iter(items)
    while chunk := list(islice(iterator, COUNT)):
        yield chunk


def as_body(body: object) -> bytes:
    """Convert one body to bytes.

    Raises:
        ProgrammingError: `body` is neither text nor bytes nor another buffer.
    """
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    try:
        return bytes(memoryview(body))  # type: ignore[arg-type]
    except TypeError:
        raise ProgrammingError(f"a body must be bytes, a buffer or text, not {type(body).__name__}") from None


def _arrow(array: Any) -> Iterator[list[bytes]]:
    if array.null_count:
        raise ProgrammingError(f"{array.null_count} of {len(array)} bodies are null")
    kind, count, offset = str(array.type), len(array), array.offset
    if not count:
        return
    buffers = array.buffers()
    if kind in _OFFSETS:
        offsets = memoryview(buffers[1]).cast("B").cast(_OFFSETS[kind])[offset : offset + count + 1]
        data = memoryview(buffers[2] or b"").cast("B")
        for at in range(0, count, COUNT):
            yield _rows(data, offsets[at : at + COUNT + 1].tolist())
    elif kind.startswith("fixed_size_binary["):
        width = array.type.byte_width
        data = memoryview(buffers[1]).cast("B")[offset * width : (offset + count) * width]
        for at in range(0, count, COUNT):
            rows = min(COUNT, count - at)
            yield _rows(data, range(at * width, (at + rows) * width + 1, width) if width else [0] * (rows + 1))
    else:
        raise ProgrammingError(f"bodies must be binaries or strings, not an Arrow column of {kind}")


def _rows(data: memoryview, offsets: Sequence[int]) -> list[bytes]:
    first = offsets[0]
    block = bytes(data[first : offsets[-1]])
    return [block[a - first : b - first] for a, b in pairwise(offsets)]
