"""Runs the audit as a user does: `escrowmq audit`, in a separate process, over the journal of the running broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAGE: Final = re.compile(r" *\d+\.\d s  ")
"""Matches a line of progress: the time at which a stage began, and its name."""
VERDICTS: Final = (0, 1)
"""The exit codes with a verdict: clean, and not clean."""


class AuditFailed(Exception):  # noqa: N818 - named after the event
    """The audit failed without a verdict; the text is the end of its output."""


@dataclass(frozen=True, slots=True)
class Audited:
    """The verdict of an audit."""

    clean: bool
    violations: int
    worst: list[str]
    records: int
    messages: int
    undecided: int
    report: Path


def audit(journal: Path, out: Path, tell: Callable[[str], None]) -> Audited:
    """Run the audit, and pass the lines of its progress to `tell`. Raises AuditFailed."""
    command = [sys.executable, "-m", "escrowmq", "audit", str(journal), "--out", str(out), "--json", "--no-nice"]
    said = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said.append(line.rstrip())
                if _STAGE.match(line):
                    tell(line.rstrip())
            answer = process.stdout.read()
        except BaseException:
            process.kill()
            raise
    if process.returncode not in VERDICTS or not answer:
        raise AuditFailed("\n".join(said[-20:]) or f"the audit exited with code {process.returncode}")
    verdict = json.loads(answer)
    return Audited(
        verdict["clean"],
        verdict["violations"],
        verdict["worst"],
        verdict["records"],
        verdict["messages"],
        verdict["undecided"],
        Path(verdict["report"]),
    )
