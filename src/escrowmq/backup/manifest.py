"""The manifest of a backup, `backup.json`: which files, and how much of each, make up the backup.

A backup is what its manifest lists. The file is replaced atomically, after everything that it lists is on disk, and no
listed byte is ever changed. A backup that was cut off is therefore the one before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from escrowmq.journal.markers import BACKUP
from escrowmq.journal.storage import Readable, Storage

FORMAT: Final = 1
_LARGEST: Final = 1 << 30


class BackupError(Exception):
    """A backup or a restore cannot be made. The text is for the operator."""


class BackupDamaged(BackupError):  # noqa: N818 - named for what was found
    """The files of a backup are not what was copied, so the backup is not whole."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a backup: its first `size` bytes, which have this SHA-256. A `sealed` file never changes."""

    name: str
    size: int
    sha256: str
    sealed: bool


@dataclass(slots=True)
class Manifest:
    """The contents of the manifest."""

    journal_id: str
    """The journal's identity, in hexadecimal."""
    whole: bool = False
    """False until the first backup is complete."""
    as_of_us: int = 0
    """Everything that was confirmed before this time is in the backup; microseconds since 1970 UTC."""
    end_lsn: int = 0
    files: dict[str, CopiedFile] = field(default_factory=dict)
    staged: dict[str, CopiedFile] = field(default_factory=dict)
    """Files that are copied and checked, but belong to a backup that is not complete yet."""
    extras: dict[str, str] = field(default_factory=dict)
    """Small files beside the journal, in base64."""

    @property
    def known(self) -> Mapping[str, CopiedFile]:
        """All files that are copied and checked."""
        return self.files | self.staged

    @property
    def size(self) -> int:
        """The size of the backup in bytes."""
        return sum(entry.size for entry in self.files.values())


def load(storage: Readable) -> Manifest | None:
    """Return the manifest; None if there is none.

    Raises:
        BackupDamaged: It is damaged.
        BackupError: It is of a newer program.
    """
    if BACKUP not in storage.names():
        return None
    try:
        document = json.loads(storage.read(BACKUP, 0, _LARGEST))
        claimed = document.pop("sha256")
        if document["format"] > FORMAT:
            raise BackupError(f"{BACKUP} has format {document['format']}; this program reads formats up to {FORMAT}")
        if claimed != _digest(document):
            raise ValueError
        return _manifest(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupDamaged(f"the backup is damaged: {BACKUP} is not as it was written") from error


def save(storage: Storage, manifest: Manifest) -> None:
    """Replace the manifest, atomically and durably. Raises OSError."""
    document = asdict(manifest) | {"format": FORMAT}
    for key in ("files", "staged"):
        document[key] = list(document[key].values())
    data = json.dumps(document | {"sha256": _digest(document)}, indent=1).encode()
    draft = f"{BACKUP}.tmp"
    storage.create(draft)
    storage.write(draft, 0, data)
    storage.sync(draft)
    storage.finish(draft)
    storage.replace(draft, BACKUP)


def _manifest(document: dict[str, Any]) -> Manifest:
    del document["format"]
    for key in ("files", "staged"):
        document[key] = {each["name"]: CopiedFile(**each) for each in document[key]}
    return Manifest(**document)


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
