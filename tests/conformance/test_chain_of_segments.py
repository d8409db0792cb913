"""Segments form a chain: each refers to the digest of the one before it, also after crashes and in older journals."""

from __future__ import annotations

import hashlib

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from tests.unit.journal.journals import memory


def opened(storage: MemoryStorage, *, contents: bool = False) -> Journal:
    journal = Journal.open(storage, segment_bytes=300, journal_id=b"0123456789abcdef", chain_contents=contents)
    for _ in journal.replay():
        pass
    return journal


def write(journal: Journal, frames: int) -> None:
    for number in range(frames):
        journal.append(1, bytes([number]) * 100)
        batch = journal.take_batch(number)
        assert batch is not None
        batch.write()
        journal.batch_done(batch)


def files(storage: MemoryStorage) -> list[JournalFile]:
    return [JournalFile(storage, name) for name in storage.names() if name.endswith(".log")]


def digest(file: JournalFile, *, contents: bool) -> bytes:
    found = hashlib.sha256(file.header.pack())
    for frame in file.walk(end=file.footer.end_lsn if file.footer else None):
        found.update(frame.head)
        if contents:
            found.update(frame.body)
    return found.digest()


def check(storage: MemoryStorage, *, contents: bool = False) -> None:
    link = bytes(fmt.LINK_SIZE)
    for file in files(storage):
        assert file.header.link == link
        if file.footer is not None:
            assert file.footer.chained == (fmt.OF_CONTENTS if contents else fmt.OF_HEADERS)
            assert file.footer.chain == digest(file, contents=contents)
            link = file.footer.chain[: fmt.LINK_SIZE]


@pytest.mark.parametrize("contents", [False, True], ids=["headers", "contents"])
def test_each_segment_refers_to_the_one_before_it(contents: bool) -> None:
    storage = memory()
    journal = opened(storage, contents=contents)
    write(journal, 10)
    journal.close()
    assert len(files(storage)) > 2
    check(storage, contents=contents)


def test_the_chain_continues_after_a_crash_and_after_a_clean_stop() -> None:
    storage = memory()
    write(opened(storage), 4)
    storage.crash()
    journal = opened(storage)
    write(journal, 4)
    journal.close()
    write(opened(storage), 1)
    opened(storage)
    assert len(files(storage)) > 4
    check(storage)
