"""One segment of a node's copy: its frames are compared with the file that is there, or written to it."""

from __future__ import annotations

from typing import Final

from escrowmq.journal import format as fmt
from escrowmq.journal.frames import Frame, JournalFile
from escrowmq.journal.storage import Storage
from escrowmq.journal.writer import FooterBuilder, write_footer
from escrowmq.replica.errors import EntryDamaged
from escrowmq.replica.fold import ReplicatedFrame

TEMPORARY: Final = ".tmp"


class SegmentCopy:
    """A segment file. Until `cut`, its bytes are compared and not written."""

    def __init__(self, storage: Storage, header: bytes, *, chain_contents: bool) -> None:
        """`header` is the 64 bytes of a file that exists, or that `create` makes."""
        self._storage = storage
        self.header = header
        self._header = fmt.read_file_header("the header of a segment", header)
        self._chain_contents = chain_contents
        self._footer = FooterBuilder(self._header, contents=chain_contents)
        self.name = fmt.segment_name(self._header.lsn)
        self.writing = False
        """Whether the file has nothing behind the frames so far, and further frames are written to it."""

    @property
    def first_lsn(self) -> int:
        """The address of the first frame."""
        return self._header.lsn

    @property
    def end_lsn(self) -> int:
        """The address behind the frames so far."""
        return self._footer.end_lsn

    def create(self) -> None:
        """Create the file durably, in place of one of this name. Raises OSError."""
        temporary = self.name + TEMPORARY
        self._storage.create(temporary)
        self._storage.write(temporary, 0, self.header)
        self._storage.sync(temporary)
        self._storage.replace(temporary, self.name)
        self.writing = True

    def take(self, frame: ReplicatedFrame) -> bool:
        """Add a frame, and return whether the file has it now. If the file has other bytes there, nothing changes.

        Raises EntryDamaged if the log has something there that is no frame, and OSError.
        """
        if len(frame.data) < fmt.FRAME_HEADER_SIZE:
            raise EntryDamaged(f"a frame of {len(frame.data)} bytes at LSN {frame.lsn:#x} is shorter than its header")
        offset = self._offset
        if self.writing:
            self._storage.write(self.name, offset, frame.data)
        elif self._storage.read(self.name, offset, len(frame.data)) != frame.data:
            return False
        header = fmt.FRAME_HEADER.unpack_from(frame.data)
        parts = memoryview(frame.data)[: fmt.FRAME_HEADER_SIZE], memoryview(frame.data)[fmt.FRAME_HEADER_SIZE :]
        self._footer.add(frame.lsn, frame.lsn + len(frame.data), header[4], header[6], parts)
        return True

    def rest(self) -> list[Frame]:
        """Return the intact frames that the file has behind those so far. Raises OSError."""
        if self.writing:
            return []
        return list(JournalFile(self._storage, self.name).walk(self.end_lsn))

    def tail(self) -> bytes:
        """Return all bytes behind the frames so far, without trailing zeros. Raises OSError."""
        return self._storage.read(self.name, self._offset, self._storage.size(self.name)).rstrip(b"\0")

    def cut(self) -> None:
        """Cut off everything behind the frames so far; further frames are written. Raises OSError."""
        self._storage.truncate(self.name, self._offset)
        self._storage.sync(self.name)
        self.writing = True

    def is_sealed(self, messages: int, following: bytes) -> bool:
        """Return whether the file ends with the footer for the frames so far. See `seal`."""
        footer = self._footer_before(messages, following).pack(self._header.seed)
        return not self.writing and self._storage.read(self.name, self._offset, len(footer) + 1) == footer

    def seal(self, messages: int, following: bytes) -> None:
        """Write the footer, durably. `following` is the header of the next segment. Raises OSError."""
        write_footer(self._storage, self.name, self._header, self._footer_before(messages, following))

    def _footer_before(self, messages: int, following: bytes) -> fmt.Footer:
        """Return the footer of the leader, to whose digest the next header links. It may be of the other kind than this
        node's setting `journal.chain` has it.
        """
        footer = self._footer.build(messages)
        header = fmt.read_file_header("the header of a segment", following)
        link = header.link
        if not footer.chain or header.lsn != self.end_lsn:  # nothing links to this segment
            return footer
        if footer.chain[: fmt.LINK_SIZE] == link:
            return footer
        other = FooterBuilder(self._header, contents=not self._chain_contents)
        for frame in JournalFile(self._storage, self.name).walk(end=self.end_lsn):
            other.add_frame(frame)
        found = other.build(messages)
        return found if found.chain[: fmt.LINK_SIZE] == link else footer

    def sync(self) -> None:
        """Make the file durable. Raises OSError."""
        if self.writing:
            self._storage.sync(self.name)

    def finish(self) -> None:
        """Make the file durable, and let others write to it. Raises OSError."""
        self._storage.sync(self.name)
        self._storage.finish(self.name)

    @property
    def _offset(self) -> int:
        return self.end_lsn - self._header.lsn + fmt.FILE_HEADER_SIZE
