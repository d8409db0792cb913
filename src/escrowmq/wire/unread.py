"""Bytes that were received and cannot be read yet: a frame is incomplete, or the connection has to wait."""

from __future__ import annotations


class Unread:
    """Chunks as they were received. They are joined once, when there are as many bytes as the reader needs."""

    __slots__ = ("_chunks", "need", "size")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self.size = 0
        """The number of bytes that are kept."""
        self.need = 0
        """The number of bytes below which nothing more can be read."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, data: bytes, need: int = 0) -> None:
        """Keep `data` after the bytes that are kept already."""
        if data:
            self._chunks.append(data)
            self.size += len(data)
        self.need = need

    @property
    def ready(self) -> bool:
        """Whether there are enough bytes to continue reading."""
        return self.size >= self.need

    def take(self) -> bytes:
        """Remove and return all bytes."""
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.clear()
        return data

    def clear(self) -> None:
        """Forget all bytes."""
        self._chunks.clear()
        self.size = self.need = 0
