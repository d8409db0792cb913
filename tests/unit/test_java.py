"""Java and PySpark are found, or refused in one line if they are too old or missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import traceback
from importlib import metadata
from pathlib import Path

import pytest

from escrowmq import java
from escrowmq.java import (
    SparkUnavailableError,
    is_missing,
    java_home,
    java_version,
    require_pyspark,
    require_worker,
)


def fake_java(folder: Path, said: str) -> Path:
    """Write a program that prints a version like `java -version`."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ("what?", None),
    ],
)
def test_the_version_is_read(said: str, expected: int | None, tmp_path: Path) -> None:
    assert java_version(str(fake_java(tmp_path, said))) == expected


def test_without_pyspark_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "version", lambda _: metadata.version("no-such-package"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SparkUnavailableError, match="no-such-package is not installed; pip install") as refused:
        require_pyspark()
    assert "".join(traceback.format_exception(refused.value)).count("Traceback") == 1


def test_a_program_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "java")) is None


def test_a_new_enough_java_is_left_alone(tmp_path: Path) -> None:
    fake_java(tmp_path, 'openjdk version "21.0.1"')
    assert java_home({"JAVA_HOME": str(tmp_path)}) is None
    assert java_home({"PATH": str(tmp_path / "bin") + os.pathsep + os.environ["PATH"]}) is None


def test_without_a_suitable_java_the_bundled_one_runs_through_a_script(tmp_path: Path) -> None:
    fake_java(tmp_path, 'java version "1.8.0_402"')
    home = java_home({"JAVA_HOME": str(tmp_path)})
    assert home is not None
    program = str(home / "bin" / "java")
    done = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=True
    )
    assert "version" in done.stderr
    version = java_version(program)
    assert version is not None
    assert version >= java.OLDEST_JAVA


def test_two_installations_do_not_share_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = []
    for name in ("one", "two", "one"):
        program = tmp_path / name / "bin" / "java"
        monkeypatch.setattr(java, "_bundled", lambda program=program: program)
        homes.append(java_home({"PATH": str(tmp_path)}))
        assert homes[-1] is not None
        assert f'exec "{program}"' in homes[-1].joinpath("bin", "java").read_text(encoding="utf-8")
    assert homes[0] == homes[2] != homes[1]


@pytest.mark.parametrize(
    ("said", "text"),
    [('java version "1.8.0_402"', "is Java 8, but Spark needs 17 or newer"), (None, "there is no working Java")],
)
def test_without_any_it_is_refused_in_one_line(
    said: str | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said is not None:
        fake_java(tmp_path, said)
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(SparkUnavailableError, match=text) as refused:
        java_home({"JAVA_HOME": str(tmp_path)})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("found", ["3.5.1", "4.0.1", "5.0.0"])
def test_another_pyspark_is_refused(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "version", lambda _: found)
    with pytest.raises(SparkUnavailableError, match=f"PySpark {found} is installed"):
        require_pyspark()


def test_the_one_that_is_installed_will_do() -> None:
    assert require_pyspark().startswith("4.")


def test_workers_with_all_dependencies_are_accepted(tmp_path: Path) -> None:
    require_worker(sys.executable)
    link = tmp_path / "python"
    link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    link.chmod(0o755)
    require_worker(str(link))


def test_workers_that_run_another_python(tmp_path: Path) -> None:
    stranger = tmp_path / "python3"
    stranger.write_text("#!/bin/sh\nexit 1\n")
    stranger.chmod(0o755)
    for python in (str(stranger), str(tmp_path / "none")):
        with pytest.raises(SparkUnavailableError, match=r"cannot import escrowmq.*call escrowmq\.spark\.prepare\(\)"):
            require_worker(python)


@pytest.mark.parametrize(
    ("module", "expected"), [("pyspark.sql", True), ("pyarrow", True), ("escrowmq.spark", False), (None, False)]
)
def test_a_missing_module_of_spark_is_recognised(module: str | None, expected: bool) -> None:
    assert is_missing(ModuleNotFoundError("no", name=module)) is expected
