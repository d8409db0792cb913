"""`python -m escrowmq.demo` without the packages that it needs."""

from __future__ import annotations

import subprocess
import sys


def test_a_missing_package_is_one_line() -> None:
    script = "import runpy, sys; sys.modules['pika'] = None; runpy.run_module('escrowmq.demo', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    line = "the demonstration needs the package pika; `make run` installs everything that it needs\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)
