"""The manifest of a backup."""

from __future__ import annotations

import json

import pytest

from escrowmq.backup.manifest import FORMAT, BackupError, CopiedFile, Manifest, load, save
from escrowmq.journal.markers import BACKUP
from escrowmq.journal.memory import MemoryStorage
from tests.unit.journal.journals import memory


def put(text: bytes) -> MemoryStorage:
    storage = memory()
    storage.create(BACKUP)
    storage.write(BACKUP, 0, text)
    return storage


def test_a_manifest_is_read_as_it_was_written() -> None:
    entry, grown = CopiedFile("a.log", 7, "00", sealed=False), CopiedFile("a.log", 9, "01", sealed=True)
    manifest = Manifest("ff", True, 5, 8, {"a.log": entry}, {"a.log": grown}, {"secret-keys": "eA=="})
    storage = memory()
    save(storage, manifest)
    assert load(storage) == manifest
    assert manifest.known == {"a.log": grown}
    assert manifest.size == 7


def test_there_may_be_none() -> None:
    assert load(memory()) is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"format": 1, "sha256": "0"}', b"\xff"])
def test_anything_else_is_damaged(text: bytes) -> None:
    with pytest.raises(BackupError, match=r"backup.json is not as it was written"):
        load(put(text))


def test_each_changed_byte_is_found() -> None:
    storage = memory()
    save(storage, Manifest("ff", True, 5, 8, {"a.log": CopiedFile("a.log", 7, "00", sealed=False)}))
    text = storage.read(BACKUP, 0, 10_000)
    document = json.loads(text)
    for i in range(len(text)):
        changed = text[:i] + bytes([text[i] ^ 1]) + text[i + 1 :]
        try:
            same = json.loads(changed) == document
        except ValueError:
            same = False
        if not same:
            with pytest.raises(BackupError):
                load(put(changed))


def test_a_newer_format_is_told() -> None:
    storage = put(json.dumps({"format": FORMAT + 1, "sha256": ""}).encode())
    with pytest.raises(BackupError, match="reads formats up to"):
        load(storage)
