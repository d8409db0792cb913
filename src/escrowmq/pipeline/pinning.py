"""Keep a journal's files readable during a run, although the broker may delete them at any time."""

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
"""The number of descriptors that the process may need in addition to those of the journal."""


@contextmanager
def pinned(journal: Path) -> Iterator[Path]:
    """Yield a folder through which the processes of this machine can read the files that `journal` contains now.

    The folder contains links to open descriptors in /proc. An open file stays readable after it has been deleted, and a
    growing segment can be read to its current end. Where this is impossible, because there is no /proc or there are too
    many files, the result is `journal` itself.
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
    """Yield the descriptors of all segments and snapshots by name. All of them existed at the same time."""
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
                    continue  # the broker deleted a file, whose content may have moved to a newer one
                raise
            yield found
            return


def _allow_descriptors(need: int) -> None:
    """Raise the limit on open files to `need` if possible; the default is often 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        wanted = need if hard == resource.RLIM_INFINITY else min(need, hard)
        with contextlib.suppress(OSError, ValueError):  # some systems have a further limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _sweep() -> None:
    """Remove the folders that killed audits have left."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = path.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(path, ignore_errors=True)
