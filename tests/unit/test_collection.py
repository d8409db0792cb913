"""Tests that are left out by default."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("expression", "long"), [("", False), ("not slow", False), ("long", True), ("not long", False)]
)
def test_long_forms_are_left_out_unless_they_are_named(expression: str, long: bool) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", expression]
    done = subprocess.run([*command, "tests/kill/test_kill.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("test_two_hundred_kills" in done.stdout) is long
