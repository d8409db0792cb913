"""Secret keys stay the same as long as their file does."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from escrowmq.server.secret_keys import NAME, SecretKeys


def test_a_secret_key_stays_the_same_after_a_restart_and_differs_for_each_key(tmp_path: Path) -> None:
    keys = SecretKeys(tmp_path)
    first = keys.secret_key("a")
    assert len(first) == 40
    assert keys.secret_key("b") != first
    assert SecretKeys(tmp_path).secret_key("a") == first


def test_another_file_makes_other_secret_keys(tmp_path: Path) -> None:
    first = SecretKeys(tmp_path).secret_key("a")
    (tmp_path / NAME).unlink()
    assert SecretKeys(tmp_path).secret_key("a") != first


def test_only_the_brokers_user_may_read_the_file(tmp_path: Path) -> None:
    SecretKeys(tmp_path).secret_key("a")
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


def test_a_damaged_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"short")
    with pytest.raises(OSError, match="restore it"):
        SecretKeys(tmp_path).secret_key("a")
    assert (tmp_path / NAME).read_bytes() == b"short"
