"""Memory and disk: sizes, usage, and the alarms that block publishers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_OTHER_DESCRIPTORS: Final = 200
"""Descriptors for the journal's files, the admin socket and its clients, and the listeners."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE_BLOCK: Final = 8 << 20
"""Bytes from which on a block is returned to the system when it is freed. Fresh pages cost more than a copy: with
1 MiB, a message of 4 MB cost twice the processor time."""
_FREE_KEPT: Final = 16 << 20
"""Free bytes at the end of the heap that are kept for reuse."""
_PRESSING: Final = 0.7
"""The share of the memory limit above which queues keep only a few messages in memory; publishers do not wait yet."""
_SCARCE_MEMORY: Final = 1.1
"""The share of the memory limit above which nothing new may be declared."""
_SCARCE_DISK: Final = 0.5
"""The share of the free space's limit below which nothing new may be declared. The rest is for settlements, outcomes,
deletions, snapshots, and the next start."""
_CALMER: Final = 0.95
"""An alarm ends only below this share of its limit, so that it does not flap."""


def resident_bytes() -> int:
    """Return this process's resident memory, or its maximum so far if the system does not report the current value."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, or its control group's limit if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # there is no control group, or its limit is "max"
        return min(total, int(_CGROUP_LIMIT.read_text(encoding="ascii")))
    return total


def allow_descriptors(connections: int) -> int:
    """Raise the limit of open files for `connections`, and return the number of connections that fit."""
    need = connections + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS has a further limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    enough = soft == resource.RLIM_INFINITY or soft >= need
    return connections if enough else max(0, soft - _OTHER_DESCRIPTORS)


def return_large_blocks() -> None:
    """Let the C library (glibc) return each very large block to the system when it is freed, and reuse smaller ones.

    By default it keeps blocks of up to 32 MiB for reuse, separately for each thread: tens of megabytes after a few
    logins.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        library.mallopt(_M_TRIM_THRESHOLD, _FREE_KEPT)


def give_back_memory() -> None:
    """Let the C library (glibc) return free memory to the system, which it does not always do by itself."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Alarms:
    """Alarms for shortage of memory and disk. Sizes are in bytes; a limit of 0 means no limit."""

    def __init__(
        self, memory_limit: int, disk_limit: int, resident: Callable[[], int], free: Callable[[], int]
    ) -> None:
        self.memory_limit = memory_limit
        self.disk_limit = disk_limit
        self.memory = False
        self.disk = False
        self.pressing = False
        """Whether so much memory is used that queues should keep new messages on disk only."""
        self.scarcity = ""
        """The resource that is so scarce that clients may only free some of it; empty if there is enough."""
        self._resident = resident
        self._free = free

    def check(self) -> bool:
        """Check memory and disk; return whether an alarm changed. Raises OSError if the free space cannot be read."""
        before = (self.memory, self.disk)
        scarcity = ""
        if self.memory_limit:
            resident = self._resident()
            self.memory = resident >= self.memory_limit * (_CALMER if self.memory else 1)
            self.pressing = resident >= self.memory_limit * _PRESSING * (_CALMER if self.pressing else 1)
            if resident >= self.memory_limit * _SCARCE_MEMORY:
                scarcity = "low on memory"
        if self.disk_limit:
            mark = self.disk_limit / _CALMER if self.disk else self.disk_limit
            free = self._free()
            self.disk = free < mark
            if free < self.disk_limit * _SCARCE_DISK:
                scarcity = "low on disk"
        self.scarcity = scarcity
        return before != (self.memory, self.disk)

    @property
    def reason(self) -> str:
        """The reason that is sent to blocked publishers; empty without an alarm."""
        return {
            (False, False): "",
            (True, False): "low on memory",
            (False, True): "low on disk",
            (True, True): "low on memory & disk",
        }[self.memory, self.disk]
