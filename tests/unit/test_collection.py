"""Tests that are left out by default, and tests that run in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import conftest
from tests.conftest import FILES, GROUPS, group_of, turn_of
from tests.unit.sources import ROOT


@pytest.mark.parametrize(("expression", "long"), [("not slow", False), ("long", True)])
def test_long_forms_are_left_out_unless_they_are_named(expression: str, long: bool) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", expression]
    done = subprocess.run([*command, "tests/kill/test_kill.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("test_two_hundred_kills" in done.stdout) is long


def test_tests_that_share_a_session_are_one_group() -> None:
    assert all((ROOT / path).exists() for path in (*GROUPS, *FILES))
    assert group_of("tests/spark/test_batch.py::test_a") == group_of("tests/spark_kill/test_spark_kill.py::test_b")
    assert group_of("tests/pipeline/test_lake.py::test_a") != group_of("tests/pipeline/test_audit.py::test_b")
    assert group_of("tests/integration/test_a.py::test_a") == group_of("tests/integration/test_a.py::test_b")
    assert group_of("tests/integration/test_a.py::test_a") != group_of("tests/integration/test_b.py::test_a")
    assert group_of("tests/unit/test_a.py::test_a") == group_of("tests/unit/test_a.py::test_b")
    assert group_of("tests/simulation/test_a.py::test_a") == "tests/simulation/test_a.py::test_a"


def test_long_groups_begin_first_and_quick_tests_last() -> None:
    tests = [
        ("tests/unit/test_a.py::test_a", False),
        ("tests/demo/test_run.py::test_a", True),
        ("tests/spark/test_batch.py::test_a", True),
        ("tests/pipeline/test_audit.py::test_a", True),
    ]
    turns = [turn_of(test, slow=slow) for test, slow in tests]
    assert turns == sorted(turns, reverse=True)
    assert len(set(turns)) == len(turns)


def test_descriptors_left_open_fail_a_test(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    held = len(conftest.descriptors())

    def teardown() -> None:
        hook = conftest.pytest_runtest_teardown(request.node)
        next(hook)
        next(hook, None)

    monkeypatch.setattr(conftest, "MOST_DESCRIPTORS", held + 5)
    teardown()
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(Path(os.devnull).open("rb"))
        with pytest.raises(pytest.fail.Exception, match="files or sockets open"):
            teardown()


def test_a_group_runs_in_one_process() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "load", "-v", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "tests/spark_kill", "-m", "not slow"], capture_output=True, text=True, check=False)
    workers = {line.split()[0] for line in done.stdout.splitlines() if " PASSED " in line}
    assert len(workers) == 1, done.stdout + done.stderr
