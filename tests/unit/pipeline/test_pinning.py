"""A journal's files stay readable until the end of a run, even if the broker deletes them."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from escrowmq.journal.format import segment_name
from escrowmq.pipeline import pinning
from escrowmq.pipeline.pinning import pinned
from escrowmq.pipeline.planning import plan
from tests.pipeline.direct import audited
from tests.pipeline.journals import Scribe
from tests.pipeline.planted import good


def write(folder: Path) -> None:
    with Scribe(folder, segment_bytes=4096) as scribe:
        for queue in range(1, 20):
            scribe.queue(queue, f"q{queue}")
            good(scribe, queue)


def test_deleted_files_are_still_readable(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write(journal)
    whole = audited(journal)
    assert len(whole.plan.pieces) > 1
    with pinned(journal) as folder:
        for path in journal.iterdir():
            path.unlink()
        again = audited(folder)
    assert again.messages == whole.messages
    assert not folder.exists()


def test_a_growing_segment_is_read_to_its_current_end(tmp_path: Path) -> None:
    with Scribe(tmp_path / "journal") as scribe:
        scribe.queue(1, "q")
        scribe.frame()
        with pinned(tmp_path / "journal") as folder:
            before = plan(folder)
            assert before.running
            scribe.publish(1, 1)
            scribe.frame()
            assert plan(folder).end > before.end


def _pin_with_few_descriptors(journal: Path) -> None:
    most = len(os.listdir("/proc/self/fd")) + 50
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with pinned(journal) as folder:
        assert len(list(folder.glob("*.log"))) == 100


def test_the_limit_on_open_files_is_raised_if_necessary(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    for number in range(100):
        (journal / segment_name(number + 1)).touch()
    # A process of its own, because earlier tests may have left many files open in this one.
    process = multiprocessing.get_context("spawn").Process(target=_pin_with_few_descriptors, args=(journal,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_files_that_cannot_be_held_open_are_read_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "journal"
    with pinned(journal) as folder:
        assert folder == journal
    write(journal)

    opened = os.open

    def refuse(path: str, *rest: Any, **more: Any) -> int:
        if str(path).endswith(".log"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pinned(journal) as folder:
            assert folder == journal
    monkeypatch.setattr(pinning, "_OPEN", tmp_path / "no proc here")
    with pinned(journal) as folder:
        assert folder == journal


def test_a_file_deleted_while_the_others_are_opened_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    write(journal)
    first = min(journal.glob("*.log"))
    opened = os.open

    def vanish(path: str, *rest: Any, **more: Any) -> int:
        if str(path).endswith(first.name):
            first.unlink(missing_ok=True)
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", vanish)
    with pinned(journal) as folder:
        assert first.name not in [path.name for path in folder.iterdir()]
        assert {path.name for path in folder.glob("*.log")} == {path.name for path in journal.glob("*.log")}


def test_folders_left_by_killed_audits_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write(tmp_path / "journal")
    gone, alive, other = (
        tmp_path / name
        for name in ("escrowmq-audit-999999999-x", f"escrowmq-audit-{os.getpid()}-x", "escrowmq-audit-x")
    )
    for folder in (gone, alive, other):
        folder.mkdir()
    with pinned(tmp_path / "journal"):
        assert [folder.exists() for folder in (gone, alive, other)] == [False, True, True]
