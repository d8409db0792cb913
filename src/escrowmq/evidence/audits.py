"""The verdicts that `escrowmq audit` has left in a folder, one file for each run."""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

VERDICTS: Final = "verdicts"
"""The folder below the one of the audit's tables."""
MOST: Final = 100
"""Runs that are shown, the latest first."""
LONGEST: Final = 4 << 20
"""Bytes of a verdict; a longer file is left out."""
_NAME: Final = re.compile(r"[0-9]{6,18}\.json")
_OF_RULE: Final = ("rule", "name", "of")
_OF_VIOLATION: Final = frozenset(("rule", "name", "vhost", "queue", "position", "branch", "lsns", "explanation"))
_log = logging.getLogger("escrowmq.http")


class AuditRun(NamedTuple):
    """One run. `content` is the file; `time` is in seconds since the epoch."""

    run: int
    time: float
    clean: bool
    violations: int
    content: dict[str, Any]

    @property
    def summary(self) -> dict[str, Any]:
        """The content without rules and violations."""
        return {name: value for name, value in self.content.items() if name not in {"rules", "found", "worst"}}


class AuditFolder:
    """Reads the verdicts below `folder`. What it has read it remembers while the file is the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / VERDICTS
        self._known: dict[str, tuple[int, AuditRun | None]] = {}

    def runs(self, most: int = MOST) -> list[AuditRun]:
        """Return the latest runs, the last one first."""
        try:
            names = sorted((path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)
        except OSError:  # there was no audit yet
            return []
        found = [self._read(name) for name in names[:most]]
        for name in set(self._known) - set(names[:MOST]):
            self._known.pop(name, None)  # another thread may do the same
        return [run for run in found if run is not None]

    def run(self, number: int) -> AuditRun | None:
        """Return a run; None if it has left no verdict."""
        return self._read(f"{number:06}.json")

    def _read(self, name: str) -> AuditRun | None:
        path = self._folder / name
        try:
            status = path.stat()
            known = self._known.get(name)
            if known is None or known[0] != status.st_mtime_ns:
                text = path.read_text("utf-8", "replace") if status.st_size <= LONGEST else ""
                known = self._known[name] = status.st_mtime_ns, _parsed(text)
                if known[1] is None:
                    _log.warning("%s is not the verdict of an audit", path)
            return known[1]
        except OSError:
            return None


def _parsed(text: str) -> AuditRun | None:
    try:
        content = json.loads(text)
        whole = (
            _has(content, int, "run", "violations", "fresh", "undecided", "records", "messages", "lsn")
            and _has(content, str, "time", "head")
            and all(_has(each, int, "checked", "broken") and _has(each, str, *_OF_RULE) for each in content["rules"])
            and all(each.keys() >= _OF_VIOLATION for each in content["found"])
        )
        if not whole:
            return None
        time = datetime.fromisoformat(content["time"]).timestamp()
        return AuditRun(content["run"], time, content["clean"] is True, content["violations"], content)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _has(content: Any, kind: type, *names: str) -> bool:
    return all(isinstance(content[name], kind) for name in names)
