"""Keeps a journal's files while a run reads them: a broker deletes what it needs no more, also in between."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from escrowmq.journal.format import parse_name
from escrowmq.pipeline.planning import LOCK

_PREFIX: Final = "escrowmq-audit-"
_OPEN: Final = Path("/proc/self/fd")
_OTHERS: Final = 1000
"""Descriptors that the process may need beside those of the journal."""


@contextmanager
def pinned(journal: Path) -> Iterator[Path]:
    """A folder with the files that `journal` has now, for processes of this machine. They are held open, and what is
    open stays readable after its name is gone; of a segment that grows, all of it is there.

    It is `journal` itself where that cannot be done: no /proc, too many files, none to keep.
    """
    with ExitStack() as stack:
        if not _OPEN.is_dir():
            yield journal
            return
        try:
            files = stack.enter_context(_opened(journal))
        except OSError:
            yield journal
            return
        _sweep()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-")))
        for name, descriptor in files.items():
            (folder / name).symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
        (folder / LOCK).symlink_to((journal / LOCK).absolute())
        yield folder


@contextmanager
def _opened(journal: Path) -> Iterator[dict[str, int]]:
    """Descriptors of the segments and snapshots, all of which were there at the same time."""
    while True:
        with ExitStack() as stack:
            found: dict[str, int] = {}
            try:
                paths = list(journal.iterdir())
                _allow_descriptors(len(paths) + _OTHERS)
                for path in paths:
                    if parse_name(path.name) is not None:
                        found[path.name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                        stack.callback(os.close, found[path.name])
            except FileNotFoundError:
                if journal.is_dir():
                    continue  # the broker has just deleted one: what stood in it may stand in one that is newer
                raise
            yield found
            return


def _allow_descriptors(need: int) -> None:
    """Ask the system for so many; by itself it often gives a process 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        wanted = need if hard == resource.RLIM_INFINITY else min(need, hard)
        with contextlib.suppress(OSError, ValueError):  # some systems have a further limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _sweep() -> None:
    """Remove folders of audits that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = path.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(path, ignore_errors=True)
