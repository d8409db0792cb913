"""What other processes write to the standard error goes to a file, and ours still to the standard error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import subprocess, sys
from pathlib import Path
from escrowmq.pipeline.diversion import diverted
try:
    with diverted(Path(sys.argv[1])) as told:
        subprocess.run(["sh", "-c", "echo WARNING: incubator >&2"])
        print("a warning of Python", file=sys.stderr)
        print("progress", file=told)
        raise KeyError
except KeyError:
    print("behind", file=sys.stderr)
"""


def test_only_the_returned_stream_leads_to_the_standard_error(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("of the last run")
    command = [sys.executable, "-c", SCRIPT, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "progress\nbehind\n"
    assert log.read_text() == "WARNING: incubator\na warning of Python\n"
