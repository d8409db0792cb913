"""The secret keys of access keys (docs/adr/0018): derived from one file, and stored nowhere."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

NAME: Final = "secret-keys"
"""The file in the data directory."""
_OCTETS: Final = 32
_DIGITS: Final = 40
_PURPOSE: Final = b"escrowmq access key "


class SecretKeys:
    """Derives the secret key of each access key from the file, which is made when it is first needed."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / NAME
        self._master = b""

    def secret_key(self, access_key: str) -> bytes:
        """Return the secret key of an access key, which need not exist. Raises OSError if the file is unusable."""
        if not self._master:
            self._master = self._read() or self._make()
        data = _PURPOSE + access_key.encode("utf-8", "surrogatepass")
        return hmac.new(self._master, data, hashlib.sha256).hexdigest()[:_DIGITS].encode()

    def _read(self) -> bytes:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return b""
        if len(data) != _OCTETS:
            raise OSError(f"{self._path} has {len(data)} octets instead of {_OCTETS}; restore it from a backup")
        return data

    def _make(self) -> bytes:
        master = secrets.token_bytes(_OCTETS)
        draft = self._path.with_name(f"{NAME}.new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, master)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        draft.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return master
