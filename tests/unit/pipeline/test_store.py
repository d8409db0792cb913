"""Only one run at a time writes to the folder of the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.pipeline.store import State, Store, StoreError


def test_a_concurrent_run_is_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    with store.locked():
        with pytest.raises(StoreError, match="another audit is writing"), Store(tmp_path / "out").locked():
            pass
        store.commit(State(lsn=7))
    with Store(tmp_path / "out").locked():
        pass


def test_locking_reloads_the_state_written_by_another_run(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    with other.locked():
        other.commit(State(lsn=7))
    with store.locked():
        assert (store.state.lsn, store.run) == (7, 2)


def test_a_new_folder_is_as_private_as_the_journal(tmp_path: Path) -> None:
    with Store(tmp_path / "out").locked():
        assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
