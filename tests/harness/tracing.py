"""Whether strace can be used here, by which tests change what system calls do."""

from __future__ import annotations

import shutil
import subprocess


def can_trace() -> bool:
    """Whether strace is installed and may trace."""
    strace = shutil.which("strace")
    if strace is None:
        return False
    done = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, check=False)
    return done.returncode == 0
