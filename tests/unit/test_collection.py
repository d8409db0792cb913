"""Tests that are left out by default, and tests that run in one process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import GROUPS, group_of
from tests.unit.sources import ROOT


@pytest.mark.parametrize(("expression", "long"), [("not slow", False), ("long", True)])
def test_long_forms_are_left_out_unless_they_are_named(expression: str, long: bool) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", expression]
    done = subprocess.run([*command, "tests/kill/test_kill.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("test_two_hundred_kills" in done.stdout) is long


def test_tests_that_share_a_session_are_one_group() -> None:
    assert all((ROOT / path).exists() for path in GROUPS)
    assert group_of("tests/spark/test_batch.py::test_a") == group_of("tests/spark_kill/test_spark_kill.py::test_b")
    assert group_of("tests/pipeline/test_lake.py::test_a") != group_of("tests/pipeline/test_audit.py::test_b")
    assert group_of("tests/unit/test_a.py::test_a") == "tests/unit/test_a.py::test_a"


def test_a_group_runs_in_one_process() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "load", "-v", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "tests/spark_kill", "-m", "not slow"], capture_output=True, text=True, check=False)
    workers = {line.split()[0] for line in done.stdout.splitlines() if " PASSED " in line}
    assert len(workers) == 1, done.stdout + done.stderr
