"""Keep the audit out of the broker's way: let it run only on processor time that no other process wants.

Linux provides the scheduling class SCHED_IDLE for this, but applies it only within a group of processes. Each session
(`sched_autogroup_enabled`) and each control group is such a group. An idle process still gets a fair share of the time
that its group competes for with others. Where it is allowed, the audit therefore joins a control group that is idle as
a whole. Otherwise it leaves one processor to a broker that runs in another group.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")
NAME: Final = "escrowmq-audit"
"""The name of the control group. The group is created once and never removed; it is empty when no audit runs."""


def give_way(broker: int | None = None) -> bool:
    """Give this process, and all that it starts from now on, only processor time that no other process wants.

    Args:
        broker: the process ID of the broker that serves the journal; None if no broker is running.

    Returns whether this process is now in the idle class, so that a busy machine may delay it without limit.
    """
    idle = False
    with suppress(OSError):
        os.nice(19)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        idle = True
    if not _join_idle_group() and broker is not None and group_of(broker) != group_of(os.getpid()):
        _leave_a_processor()
    return idle


def group_of(process: int, proc: Path = PROC) -> str:
    """Return the group within which a process competes for processors; an empty string if it cannot be determined."""
    try:
        found = _control_group(proc / str(process) / "cgroup")
        if found == "/":  # sessions are groups only in the root control group
            enabled = (proc / "sys/kernel/sched_autogroup_enabled").read_text(encoding="ascii").strip() == "1"
            if enabled:
                found = (proc / str(process) / "autogroup").read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return ""
    return found


def _control_group(listing: Path) -> str:
    """Return the path in the hierarchy that controls processors: `N:cpu:/path` in version 1, otherwise `0::/path`."""
    whole = ""
    for line in listing.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path
        if not controllers:
            whole = path
    return whole


def _join_idle_group(root: Path = ROOT, proc: Path = PROC) -> bool:
    """Move this process to the idle control group, and return whether that worked.

    A process outside the root group stays where it is, because a service manager may rely on that group, for example
    for memory limits.
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
