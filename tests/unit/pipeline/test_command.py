"""`escrowmq audit` where it cannot be made: one line and exit code 2, which is never a verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from escrowmq.cli import main
from escrowmq.pipeline.command import _cause
from escrowmq.pipeline.store import State, Store
from tests.broker import wait_until
from tests.pipeline.journals import Scribe


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with Scribe(tmp_path / "data") as scribe:
        scribe.queue(1, "q")
    return scribe.folder


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["audit", *map(str, arguments)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def test_the_tables_do_not_go_into_the_journals_folder(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(journal.iterdir())
    for out in (journal, journal / "audit", journal / ".." / "data"):
        assert "is in the journal's folder" in refused(capsys, journal, "--out", out)
    assert sorted(journal.iterdir()) == before


def test_the_tables_do_not_go_among_other_things(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = journal.parent / "table"
    out.mkdir()
    (out / "part-0.parquet").touch()
    assert "table has other things in it, as part-0.parquet" in refused(capsys, journal, "--out", out)
    assert [path.name for path in out.iterdir()] == ["part-0.parquet"]


def test_another_journals_tables_are_refused_at_once(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(journal.parent / "audit")
    store.folder.mkdir()
    store.commit(State(journal_id="another"))
    assert "audit is about another journal" in refused(capsys, journal, "--out", store.folder)


@pytest.mark.timeout(300)
def test_an_interruption_is_one_line(journal: Path) -> None:
    command = [sys.executable, "-m", "escrowmq", "audit", str(journal), "--out", str(journal.parent / "audit")]
    with subprocess.Popen(
        [*command, "--no-nice"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        said = ""
        while "scan" not in said:
            said = process.stderr.readline()
            assert said, "it has ended"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        rest = process.stderr.read().splitlines()
    assert process.returncode == 130
    assert [line for line in rest if " s  " not in line] == [
        "escrowmq: interrupted: this run does not count, and the next one does the same again"
    ]


def test_an_interruption_while_java_starts_leaves_no_process_behind(journal: Path) -> None:
    command = [sys.executable, "-m", "escrowmq", "audit", str(journal), "--out", str(journal.parent / "audit")]
    with subprocess.Popen(
        [*command, "--no-nice"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        wait_until(
            lambda: any("org.apache.spark" in line for line in others_of(process.pid)), what="a Java that starts"
        )
        os.killpg(process.pid, signal.SIGINT)
        said = [line for line in process.stderr.read().splitlines() if line.startswith("escrowmq: ")]
    assert process.returncode == 130
    assert said == ["escrowmq: interrupted: this run does not count, and the next one does the same again"]
    wait_until(lambda: not others_of(process.pid), what="the end of all that was started")


def others_of(group: int) -> list[str]:
    """The command lines of the other processes of a group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(folder.name)) == group != int(folder.name):
                line = folder.joinpath("cmdline").read_text(encoding="utf-8", errors="replace")
                found += [line] if line else []  # it is gone, but for its number
    return found


def test_a_folder_that_cannot_be_written_is_no_violation(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (journal.parent / "file").touch()
    assert "file" in refused(capsys, journal, "--out", journal.parent / "file" / "audit")


@pytest.mark.timeout(300)
def test_a_master_that_is_none_is_one_line(journal: Path) -> None:
    command = [sys.executable, "-m", "escrowmq", "audit", str(journal), "--out", str(journal.parent / "audit")]
    done = subprocess.run(
        [*command, "--no-nice", "--master", "nowhere"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("escrowmq: Spark on nowhere failed: ")
    assert last.endswith("; what it said is above")
    assert "Master must" in done.stderr


def test_the_cause_is_javas_exception_without_its_stack() -> None:
    text = "An error occurred.\n: java.lang.IllegalStateException: stopped\n\tat org.apache.spark.A.b(A)"
    assert _cause(RuntimeError(text)) == "java.lang.IllegalStateException: stopped"
    text = (
        "TASK_WRITE_FAILED\n\tat a.B\nCaused by: a.SparkException: no\n\tat a.C\nCaused by: java.io.IOException: full"
    )
    assert _cause(RuntimeError(text)) == "java.io.IOException: full"
    text = "An exception was thrown:\nTraceback (most recent call last):\n  File a\n    b\nOSError: full\n\n\tat a.B"
    assert _cause(RuntimeError(text)) == "OSError: full"
    assert _cause(RuntimeError("[CODE] what is wrong\nmore")) == "[CODE] what is wrong"
    assert _cause(RuntimeError()) == "RuntimeError"
