"""Java uses the archive made for it, starts without one if there is none, and ignores one that it cannot use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from escrowmq.java import SparkUnavailableError, java_home
from escrowmq.pipeline import archive


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JAVA_HOME with a fake Java, and an installation prefix below `tmp_path`."""
    folder = tmp_path / "java"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    (folder / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    return folder


def test_an_archive_belongs_to_one_java_and_one_pyspark(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = archive.path()
    assert one is not None
    assert archive.path() == one
    monkeypatch.setattr(archive, "version", lambda _: "9.8")
    other = archive.path()
    assert other is not None
    assert other.name.startswith("spark-9.8-")
    with (home / "bin" / "java").open("a") as java:
        java.write("# updated\n")
    assert archive.path() not in {one, other}
    monkeypatch.setenv("JAVA_HOME", str(home / "bin"))
    assert archive.path() is None
    assert archive.options() == ()


def test_an_existing_archive_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert archive.options() == ()
    monkeypatch.setattr(archive, "_run", lambda target: target.write_bytes(b"classes"))
    made = archive.make()
    assert made == archive.path()
    assert f"-XX:SharedArchiveFile={made}" in archive.options()
    assert [path.name for path in made.parent.iterdir()] == [made.name]


def test_make_fails_if_java_writes_no_archive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_run", lambda _: None)
    with pytest.raises(SparkUnavailableError, match="Java did not write"):
        archive.make()
    with pytest.raises(SystemExit, match="cannot make the archive of Spark's classes: Java did not write"):
        archive.main()
    assert archive.options() == ()


def test_java_silently_ignores_an_unusable_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.jsa"
    broken.write_bytes(b"no classes")
    monkeypatch.setattr(archive, "path", lambda: broken)
    java = Path(java_home() or os.environ.get("JAVA_HOME") or Path(str(shutil.which("java"))).resolve().parents[1])
    command = [str(java / "bin" / "java"), *archive.options(), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "version" in done.stderr.splitlines()[0]
    assert "cds" not in done.stderr
