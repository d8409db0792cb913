"""`escrowmq audit` prints one line and exits with status 2 when it cannot reach a verdict."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from escrowmq.cli import main
from escrowmq.pipeline.command import IDLE, _cause
from escrowmq.pipeline.store import State, Store
from escrowmq.pipeline.verdict import Verdict
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


def test_the_journals_folder_is_refused_for_the_tables(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(journal.iterdir())
    for out in (journal, journal / "audit", journal / ".." / "data"):
        assert "is inside the journal's folder" in refused(capsys, journal, "--out", out)
    assert sorted(journal.iterdir()) == before


def test_a_folder_with_other_files_is_refused_for_the_tables(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = journal.parent / "table"
    out.mkdir()
    (out / "part-0.parquet").touch()
    assert "table contains other files, such as part-0.parquet" in refused(capsys, journal, "--out", out)
    assert [path.name for path in out.iterdir()] == ["part-0.parquet"]


def test_tables_of_another_journal_are_refused_before_spark_starts(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(journal.parent / "audit")
    store.folder.mkdir()
    store.commit(State(journal_id="another"))
    assert "audit contains tables of another journal" in refused(capsys, journal, "--out", store.folder)


@pytest.mark.timeout(300)
def test_an_interruption_prints_one_line(journal: Path) -> None:
    command = [sys.executable, "-m", "escrowmq", "audit", str(journal), "--out", str(journal.parent / "audit")]
    with subprocess.Popen(
        [*command, "--no-nice"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        said = ""
        while "scan" not in said:
            said = process.stderr.readline()
            assert said, "the audit ended before the stage"
        os.killpg(process.pid, signal.SIGINT)  # a terminal also signals the whole group
        rest = process.stderr.read().splitlines()
    assert process.returncode == 130
    assert [line for line in rest if " s  " not in line] == [
        "escrowmq: interrupted: nothing was recorded; the next run starts from the same place"
    ]


def test_an_interruption_while_java_starts_leaves_no_process_behind(journal: Path) -> None:
    command = [sys.executable, "-m", "escrowmq", "audit", str(journal), "--out", str(journal.parent / "audit")]
    with subprocess.Popen(
        [*command, "--no-nice"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        wait_until(lambda: any("org.apache.spark" in line for line in others_of(process.pid)), what="Java to start")
        os.killpg(process.pid, signal.SIGINT)
        said = [line for line in process.stderr.read().splitlines() if line.startswith("escrowmq: ")]
    assert process.returncode == 130
    assert said == ["escrowmq: interrupted: nothing was recorded; the next run starts from the same place"]
    wait_until(lambda: not others_of(process.pid), what="all started processes to end")


def others_of(group: int) -> list[str]:
    """Return the command lines of the processes in a group, apart from its leader."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(folder.name)) == group != int(folder.name):
                line = folder.joinpath("cmdline").read_text(encoding="utf-8", errors="replace")
                found += [line] if line else []  # a zombie has an empty command line
    return found


def test_a_folder_that_cannot_be_written_to_is_an_error_and_no_violation(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (journal.parent / "file").touch()
    assert "file" in refused(capsys, journal, "--out", journal.parent / "file" / "audit")


@pytest.mark.timeout(300)
def test_an_invalid_master_prints_one_line_at_the_end(journal: Path) -> None:
    command = [sys.executable, "-m", "escrowmq", "audit", str(journal), "--out", str(journal.parent / "audit")]
    done = subprocess.run(
        [*command, "--no-nice", "--master", "nowhere"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 2, done.stderr
    log = journal.parent / "audit" / "spark.log"
    *progress, last = done.stderr.splitlines()
    assert last.startswith("escrowmq: Spark on nowhere failed: ")
    assert last.endswith(f"; its full output is in {log}")
    assert all(re.match(r" *[0-9.]+ s  ", line) for line in progress), "only progress is shown, no warnings of Java"
    assert "Master must" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize(("arguments", "lines"), [((), 1), (("--no-nice",), 0), (("--quiet",), 0)])
def test_an_audit_that_uses_only_idle_processor_time_says_so(
    arguments: tuple[str, ...],
    lines: int,
    journal: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdict = Verdict(violations=0, fresh=0, undecided=0, run=1, lsn=0, records=0, messages=0, bytes=0)
    monkeypatch.setattr("escrowmq.pipeline.background.give_way", lambda _: True)
    monkeypatch.setattr("escrowmq.pipeline.command.prepare", lambda: None)
    monkeypatch.setattr("escrowmq.pipeline.audit.audit", lambda *_, **__: verdict)
    assert main(["audit", str(journal), "--out", str(journal.parent / "audit"), *arguments]) == 0
    said = capsys.readouterr().err
    assert said.count(IDLE) == said.count("\n") == lines


def test_the_cause_is_the_innermost_exception_without_its_stack() -> None:
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


@pytest.mark.parametrize("blocked", [["pyarrow"], ["pyspark"], ["pyarrow", "pyspark", "numpy"]], ids=str)
def test_without_spark_one_line_tells_how_to_install_it(journal: Path, blocked: list[str]) -> None:
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked})); "
        "from escrowmq.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, "audit", str(journal), "--out", str(journal.parent / "audit")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    line = "escrowmq: the audit needs Spark: pip install 'escrowmq[spark]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
