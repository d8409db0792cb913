"""Out of the way of the broker: the audit runs on processor time that nobody else wants.

The scheduling class for that, SCHED_IDLE, holds within a group of processes only, and Linux makes a group of each
session (`sched_autogroup_enabled`) and each control group: next to those of other groups an idle process gets its fair
share. So the audit goes into a control group that is idle as a whole, where that is allowed; and where it is not, it
leaves one processor to a broker that runs in another group.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")
NAME: Final = "escrowmq-audit"
"""The control group. It is made once, and stays: it is empty when no audit runs."""


def give_way(broker: int | None = None) -> None:
    """Run only on time that nobody else wants, as do all processes that are started from here.

    Args:
        broker: the process that serves the journal; None if there is none.
    """
    with suppress(OSError):
        os.nice(19)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if not _join_idle_group() and broker is not None and group_of(broker) != group_of(os.getpid()):
        _leave_a_processor()


def group_of(process: int, proc: Path = PROC) -> str:
    """The group in which a process competes for processors; empty if that cannot be told."""
    try:
        found = _control_group(proc / str(process) / "cgroup")
        if found == "/":  # only there are sessions groups
            enabled = (proc / "sys/kernel/sched_autogroup_enabled").read_text(encoding="ascii").strip() == "1"
            if enabled:
                found = (proc / str(process) / "autogroup").read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return ""
    return found


def _control_group(listing: Path) -> str:
    """The path within the hierarchy that has the processors: `N:cpu:/path` of version 1, else `0::/path`."""
    whole = ""
    for line in listing.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path
        if not controllers:
            whole = path
    return whole


def _join_idle_group(root: Path = ROOT, proc: Path = PROC) -> bool:
    """Whether this process is in an idle control group now.

    One that somebody has put it into is never left: limits on memory may hang on it, and a service manager's order.
    """
    try:
        if _control_group(proc / "self" / "cgroup") != "/":
            return False
        group = next(base for base in (root / "cpu", root / "cpu,cpuacct", root) if (base / "cgroup.procs").exists())
        group /= NAME
        group.mkdir(exist_ok=True)
        (group / "cpu.idle").write_text("1", encoding="ascii")
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    except (OSError, StopIteration):
        return False
    return True


def _leave_a_processor() -> None:
    with suppress(OSError, AttributeError):
        mine = sorted(os.sched_getaffinity(0))
        if len(mine) > 1:
            os.sched_setaffinity(0, mine[1:])
