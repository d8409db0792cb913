"""The audit finds the group of a process, and moves itself to an idle control group where it can (PIPE-4)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from escrowmq.pipeline import background

PID = 12


def proc(folder: Path, listing: str, *, sessions: bool = True) -> Path:
    """Return a fake /proc with the groups of a process."""
    for name in (str(PID), "self"):
        mine = folder / name
        mine.mkdir()
        mine.joinpath("cgroup").write_text(listing)
        mine.joinpath("autogroup").write_text("/autogroup-77 nice 0\n")
    kernel = folder / "sys" / "kernel"
    kernel.mkdir(parents=True)
    kernel.joinpath("sched_autogroup_enabled").write_text(f"{int(sessions)}\n")
    return folder


@pytest.mark.parametrize(
    ("listing", "sessions", "group"),
    [
        ("0::/\n", True, "/autogroup-77"),
        ("0::/\n", False, "/"),
        ("4:memory:/a:b\n1:cpu,cpuacct:/\n0::/x\n", True, "/autogroup-77"),
        ("1:cpu:/jobs\n0::/\n", True, "/jobs"),
        ("0::/system.slice/escrowmq.service\n", True, "/system.slice/escrowmq.service"),
    ],
)
def test_the_group_of_a_process_is_its_control_group_or_its_session(
    tmp_path: Path, listing: str, sessions: bool, group: str
) -> None:
    assert background.group_of(PID, proc(tmp_path, listing, sessions=sessions)) == group


def test_the_group_of_a_process_that_has_ended_is_unknown(tmp_path: Path) -> None:
    assert background.group_of(PID, tmp_path) == ""


@pytest.mark.parametrize("hierarchy", ["cpu", "cpu,cpuacct", "."])
def test_an_idle_control_group_is_created_and_joined(tmp_path: Path, hierarchy: str) -> None:
    base = tmp_path / "cgroup" / hierarchy
    base.mkdir(parents=True)
    base.joinpath("cgroup.procs").touch()
    (tmp_path / "proc").mkdir()
    listing = proc(tmp_path / "proc", "0::/\n")
    assert background._join_idle_group(tmp_path / "cgroup", listing)
    group = base / background.NAME
    assert (group / "cpu.idle").read_text() == "1"
    assert (group / "cgroup.procs").read_text() == str(os.getpid())


def test_the_group_of_a_service_is_not_left(tmp_path: Path) -> None:
    base = tmp_path / "cgroup"
    base.mkdir()
    base.joinpath("cgroup.procs").touch()
    (tmp_path / "proc").mkdir()
    listing = proc(tmp_path / "proc", "0::/system.slice/audit.service\n")
    assert not background._join_idle_group(base, listing)
    assert not (base / background.NAME).exists()


def test_a_system_without_control_groups_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert not background._join_idle_group(tmp_path / "nothing", proc(tmp_path / "proc", "0::/\n"))


def test_a_process_gives_way_with_all_its_children() -> None:
    """The broker is in another session. The test uses a separate process, because giving way cannot be undone."""
    code = (
        "import os, subprocess, sys\n"
        "from escrowmq.pipeline.background import _join_idle_group, give_way, group_of\n"
        "assert give_way(os.getppid())\n"
        "one_less = len(os.sched_getaffinity(0)) == max(len(os.sched_getaffinity(os.getppid())) - 1, 1)\n"
        "assert one_less or group_of(os.getpid()).endswith('/escrowmq-audit') or group_of(os.getpid()) == ''\n"
        "child = [sys.executable, '-c', 'import os; print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.nice(0))']\n"
        "subprocess.run(child, check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "19"]
