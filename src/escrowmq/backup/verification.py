"""Checks of copied files: every frame's checksums, the footers, and the chain of segments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from escrowmq.backup.manifest import BackupDamaged, CopiedFile
from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.recovery import check_snapshot, examine
from escrowmq.journal.removals import REMOVED, UNKNOWN, DeletedParts
from escrowmq.journal.segments import SegmentTable
from escrowmq.journal.snapshot import read_snapshot
from escrowmq.journal.storage import Readable
from escrowmq.journal.writer import FooterBuilder

if TYPE_CHECKING:
    from hashlib import _Hash

PIECE: Final = 1 << 20
"""The size of one read, in bytes."""


def check_sealed(file: JournalFile, end: int | None = None) -> tuple[int, bytes]:
    """Check a whole file. `end` is the address at which it ends if its footer is damaged (segments only).

    Returns the address of its end and its digest in the chain (empty if it has none).

    Raises:
        JournalDamaged: It is not intact.
    """
    footer = file.footer
    if file.header.type == fmt.TYPE_SNAPSHOT:
        check_snapshot(file)
        return 0, b""
    if footer is None and end is None:
        raise JournalDamaged(file.name, file.storage.size(file.name), "the file has no intact footer")
    contents = footer is not None and footer.chained == fmt.OF_CONTENTS
    builder = FooterBuilder(file.header, contents=contents)
    stop = footer.end_lsn if footer is not None else end
    walk = file.walk(end=stop)
    for frame in walk:
        builder.add_frame(frame)
    if walk.lsn != stop:
        raise JournalDamaged(file.name, walk.offset, walk.why)
    digest = footer.chain if footer is not None else b""
    if digest and digest != builder.build(0).chain:
        raise JournalDamaged(file.name, file.offset_of(walk.lsn), "its frames have another digest than its footer says")
    return walk.lsn, digest


def check_frames(file: JournalFile, lsn: int, end: int) -> None:
    """Check the frames between two addresses. Raises JournalDamaged."""
    walk = file.walk(lsn, end)
    for _ in walk:
        pass
    if walk.lsn != end:
        raise JournalDamaged(file.name, walk.offset, walk.why)


def check_link(file: JournalFile, end: int, digest: bytes) -> None:
    """Check that a segment continues the one before it, which ends at `end` and has this digest.

    Raises:
        JournalDamaged: It does not.
    """
    link = file.header.link
    if file.origin == end and digest and any(link) and link != digest[: fmt.LINK_SIZE]:
        raise JournalDamaged(file.name, 48, "the segment does not continue the one before it")


def check_journal(storage: Readable) -> int:
    """Check all journal files of a directory, and that a broker can start from them. Returns the end of the log.

    Raises:
        JournalDamaged, JournalVersionUnknown: They are not intact.
    """
    found = [(parsed, name) for name in storage.names() if (parsed := fmt.parse_name(name))]
    segments = [(lsn, name) for (type_, lsn), name in found if type_ == fmt.TYPE_SEGMENT]
    for (type_, _), name in found:
        if type_ == fmt.TYPE_SNAPSHOT:
            check_sealed(JournalFile(storage, name))
    log_end = examine(storage).end_lsn
    end, digest = -1, b""
    for i, (_, name) in enumerate(segments):
        file = JournalFile(storage, name)
        check_link(file, end, digest)
        if i + 1 < len(segments):
            end, digest = check_sealed(file, segments[i + 1][0])
        elif file.footer is None:
            check_frames(file, file.origin, log_end)
        else:
            check_sealed(file)
    return log_end


def unexplained_gaps(storage: Readable) -> list[str]:
    """Compare the parts that are missing between the segments with those that the journal has noted as deleted, and the
    segments behind these with the digests that it has noted. Return what does not agree, in words.

    Raises:
        JournalDamaged, JournalVersionUnknown: The files are not intact.
    """
    found = examine(storage)
    missing = SegmentTable(found.segments).missing()
    if not missing:
        return []
    deleted, snapshot_lsn = DeletedParts(), found.report.snapshot_lsn
    if found.snapshot is not None:
        for kind, payload, _ in read_snapshot(found.snapshot):
            if kind == REMOVED:
                deleted.replay(found.snapshot.name, payload)
    for segment in found.segments:
        if segment.missing or segment.end_lsn <= snapshot_lsn:
            continue
        file = found.files[segment.first_lsn]
        for frame in file.walk(end=segment.end_lsn):
            for lsn, kind, payload in frame.records() if REMOVED in frame.kinds else ():
                if kind == REMOVED and lsn >= snapshot_lsn:
                    deleted.replay(file.name, payload)
    wrong = deleted.found(missing, noting=found.noting)
    for hole in deleted.holes:
        behind = found.files.get(hole.end_lsn)
        if behind is not None and UNKNOWN not in (hole.link, behind.header.link) and hole.link != behind.header.link:
            wrong.append(f"the segment at LSN {hole.end_lsn:#x} does not continue the one that the broker has deleted")
    return wrong


def digest_of(storage: Readable, entry: CopiedFile, progress: Callable[[int], object]) -> _Hash:
    """Return the digest of a file of a backup, which is what the manifest says. Raises BackupDamaged otherwise."""
    digest, at = hashlib.sha256(), 0
    try:
        while at < entry.size and (piece := storage.read(entry.name, at, min(PIECE, entry.size - at))):
            digest.update(piece)
            at += len(piece)
            progress(len(piece))
    except FileNotFoundError as error:
        raise BackupDamaged(f"the backup is damaged: {entry.name} is missing") from error
    except OSError as error:
        raise BackupDamaged(f"the backup is damaged: {entry.name} cannot be read: {error.strerror or error}") from error
    if digest.hexdigest() != entry.sha256:
        raise BackupDamaged(f"the backup is damaged: {entry.name} has changed since it was copied")
    return digest
