"""The decision log returns every decision that is on disk, after any fault."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.xa.errors import LogDamaged, LogError, LogInUse
from escrowmq.xa.log import DecisionLog, commit_decision, read
from escrowmq.xa.states import BranchState
from tests.harness.tracing import can_trace
from tests.unit.sources import ROOT

SECTOR = 512


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.db"


@pytest.fixture
def log(path: Path) -> Iterator[DecisionLog]:
    log = DecisionLog(path, "shop")
    yield log
    log.close()


def test_a_decision_survives_a_restart(path: Path, log: DecisionLog) -> None:
    log.write(commit_decision("shop.1.a", ["bank.1", "queue.2"]))
    log.close()
    again = DecisionLog(path, "shop")
    found = again.get("shop.1.a")
    assert found is not None
    assert found.outcome == "commit"
    assert found.branches == {"bank.1": BranchState.PREPARED, "queue.2": BranchState.PREPARED}
    assert again.get("shop.1.b") is None
    assert again.identity == log.identity
    again.close()


def test_a_finished_decision_is_deleted_with_the_next_write(path: Path, log: DecisionLog) -> None:
    log.write(commit_decision("a", ["bank.1"]))
    log.finish("a")
    assert log.decisions() == {}
    assert set(read(path).decisions) == {"a"}
    log.write(commit_decision("b", ["bank.1"]))
    assert set(read(path).decisions) == {"b"}
    log.finish("b")
    log.close()
    assert read(path).decisions == {}


def test_a_log_belongs_to_one_manager_at_a_time(path: Path, log: DecisionLog) -> None:
    with pytest.raises(LogInUse, match=f"in use by process {os.getpid()}"):
        DecisionLog(path, "shop")
    log.close()
    with pytest.raises(LogError, match="belongs to the manager 'shop', not 'store'"):
        DecisionLog(path, "store")
    DecisionLog(path, "shop").close()


def test_decisions_of_many_threads_share_syncs(path: Path, log: DecisionLog) -> None:
    def decide(number: int) -> None:
        for turn in range(5):
            log.write(commit_decision(f"{number}.{turn}", ["bank.1"]))

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert len(read(path).decisions) == 80


def test_a_file_that_is_not_a_log_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (v)")
    other.close()
    with pytest.raises(LogDamaged, match="is not a decision log"):
        DecisionLog(path, "shop")
    path.write_bytes(b"something else" * 1000)
    with pytest.raises(LogDamaged, match="not a database"):
        DecisionLog(path, "shop")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="No such file"):
        DecisionLog(tmp_path / "nowhere" / "decisions.db", "shop")


@pytest.mark.parametrize("statement", ["DELETE FROM decision WHERE id = 'b'", "UPDATE decision SET body = '[]'"])
def test_a_log_that_lost_data_is_refused(path: Path, log: DecisionLog, statement: str) -> None:
    for gtrid in ("a", "b"):
        log.write(commit_decision(gtrid, ["bank.1"]))
    log.close()
    with sqlite3.connect(path) as other:
        other.execute(statement.replace("WHERE id", "WHERE gtrid"))
    other.close()
    with pytest.raises(LogDamaged, match="checksums"):
        DecisionLog(path, "shop")


# ---- power failures: between two syncs, any subset of the written sectors may reach the disk ----


def image(path: Path) -> dict[str, bytes]:
    """Return the current files of a log."""
    names = (path, path.with_name(path.name + "-wal"))
    return {name.name: name.read_bytes() for name in names if name.exists()}


def cut(before: bytes, after: bytes, kept: list[bool]) -> bytes:
    """Return `before` with those sectors of `after` that reached the disk."""
    length = len(after) if kept and kept[-1] else max(len(before), 0)
    result = bytearray(before.ljust(length, b"\0"))
    changed = [at for at in range(0, len(after), SECTOR) if before[at : at + SECTOR] != after[at : at + SECTOR]]
    for number, at in enumerate(changed):
        if kept and kept[number % len(kept)]:
            piece = after[at : at + SECTOR]
            result[len(result) :] = b"\0" * max(0, at - len(result))
            result[at : at + len(piece)] = piece
    return bytes(result)


@pytest.mark.rule("DTX-15")
@given(data=st.data())
def test_a_power_cut_leaves_a_decision_whole_or_absent(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = folder / "decisions.db"
    log = DecisionLog(path, "shop")
    earlier = data.draw(st.integers(0, 3), label="earlier")
    for number in range(earlier):
        log.write(commit_decision(f"earlier{number}", ["bank.1"]))
    before = image(path)
    log.write(commit_decision("new", [f"bank.{number}" for number in range(data.draw(st.integers(1, 200)))]))
    after = image(path)
    log.close()
    kept = data.draw(st.lists(st.booleans(), min_size=1, max_size=40), label="sectors on disk")
    crashed = folder / "crashed"
    crashed.mkdir()
    for name, content in after.items():
        (crashed / name).write_bytes(cut(before[name], content, kept))
    again = DecisionLog(crashed / "decisions.db", "shop")
    found = set(again.decisions())
    again.close()
    assert found - {"new"} == {f"earlier{number}" for number in range(earlier)}
    if all(kept):
        assert "new" in found
    # A decision that recovery has read survives any later failure of the machine.
    assert set(read(crashed / "decisions.db").decisions) == found
    shutil.rmtree(folder)


@given(data=st.data())
def test_damage_never_loses_a_decision_silently_from_the_main_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A byte that flips after everything was synced and checkpointed is detected, or has no effect."""
    folder = tmp_path_factory.mktemp("log")
    path = folder / "decisions.db"
    log = DecisionLog(path, "shop")
    for number in range(20):
        log.write(commit_decision(f"g{number}", ["bank.1", "queue.2"]))
    log.close()
    content = bytearray(path.read_bytes())
    used = 40 * 1024
    content[data.draw(st.integers(0, used - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        again = DecisionLog(path, "shop")
    except LogError:
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert len(again.decisions()) == 20
    again.close()


# ---- a full disk, a failing sync, a kill at any system call ----

DECIDE = """
import resource, sys
from escrowmq.xa.log import DecisionLog, commit_decision
from escrowmq.xa.errors import LogError

log = DecisionLog(sys.argv[1], "shop")
print("open", flush=True)
if int(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for number in range(int(sys.argv[3])):
    print("try", number, flush=True)
    try:
        log.write(commit_decision(f"g{number}", [f"bank.{n}" for n in range(40)]))
    except LogError as error:
        print("failed", error.uncertain, error, flush=True)
        try:
            log.write(commit_decision("later", ["bank.1"]))
        except LogError as error:
            print("still", error.uncertain, flush=True)
        try:
            log.decisions()
        except LogError:
            print("says nothing", flush=True)
        if int(sys.argv[2]):
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            log.reopen()
            print("reopened", *sorted(log.decisions()), flush=True)
        break
    print("decided", number, flush=True)
"""


def decide(path: Path, limit: int, count: int, *prefix: str) -> list[list[str]]:
    command = [*prefix, sys.executable, "-c", DECIDE, str(path), str(limit), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, cwd=ROOT)
    assert "Traceback" not in done.stderr or prefix, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def acknowledged(lines: list[list[str]]) -> set[str]:
    return {f"g{line[1]}" for line in lines if line[0] == "decided"}


def tried(lines: list[list[str]]) -> set[str]:
    return {f"g{line[1]}" for line in lines if line[0] == "try"}


@pytest.mark.parametrize("limit", [2_000_000, 2_000_700, 2_001_023, 2_004_096, 2_010_001])
def test_a_full_disk_is_an_error(path: Path, limit: int) -> None:
    lines = decide(path, limit, 5000)
    kinds = [line[0] for line in lines]
    assert kinds[-4:] == ["failed", "still", "says", "reopened"], lines[-5:]
    assert lines[-4][1] == "True"
    assert lines[-3][1] == "False"
    assert len(acknowledged(lines)) > 200, "the reserve has space for at least this many"
    found = set(lines[-1][1:])
    assert acknowledged(lines) <= found <= tried(lines)
    assert set(read(path).decisions) == found


needs_strace = pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")


@needs_strace
@pytest.mark.parametrize("number", range(1, 26, 3))
def test_a_failed_sync_is_an_error(path: Path, number: int) -> None:
    """A failed sync is not simply retried: the log answers nothing until it has been read and rewritten."""
    fault = ("-e", "trace=fsync,fdatasync", "-e", f"inject=fsync,fdatasync:error=EIO:when={number}+")
    lines = decide(path, 0, 30, "strace", "-f", "-o", "/dev/null", *fault)
    if lines and lines[0] == ["open"]:
        assert [line[0] for line in lines[-3:]] == ["failed", "still", "says"], lines[-4:]
    again = DecisionLog(path, "shop")
    assert acknowledged(lines) <= set(again.decisions()) <= tried(lines)
    again.close()


@needs_strace
@pytest.mark.parametrize("call", ["pwrite64", "fsync,fdatasync", "unlink", "ftruncate"])
@pytest.mark.parametrize("number", [1, 2, 4, 7, 11, 17, 29])
def test_a_kill_at_any_system_call_leaves_a_valid_log(path: Path, call: str, number: int) -> None:
    fault = ("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}")
    lines = decide(path, 0, 30, "strace", "-f", "-o", "/dev/null", *fault)
    again = DecisionLog(path, "shop")
    assert acknowledged(lines) <= set(again.decisions()) <= tried(lines)
    again.close()


def test_the_error_contains_the_systems_reason(tmp_path: Path) -> None:
    (tmp_path / "decisions.db").mkdir()
    with pytest.raises(LogError, match=os.strerror(errno.EISDIR)):
        DecisionLog(tmp_path / "decisions.db", "shop")


def forked(work: Callable[[], object]) -> Callable[[], int]:
    """Run `work` in a forked child. Returns a function that waits for the child and returns its exit code."""
    pid = os.fork()
    if pid:
        return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def test_a_forked_child_leaves_the_log_to_its_parent(path: Path, log: DecisionLog) -> None:
    log.write(commit_decision("before", ["bank.1"]))

    def try_everything() -> None:
        with pytest.raises(LogError, match="parent"):
            log.write(commit_decision("by the child", ["bank.1"]))
        with pytest.raises(LogError, match="parent"):
            log.reopen()
        log.close()
        with pytest.raises(LogInUse):
            DecisionLog(path, "shop")

    assert forked(try_everything)() == 0
    log.write(commit_decision("after", ["bank.1"]))
    assert set(read(path).decisions) == {"before", "after"}


@pytest.mark.parametrize("closed", [True, False])
def test_children_that_live_on_do_not_keep_the_log_in_use(path: Path, closed: bool) -> None:
    waits, goes = os.pipe()
    told, tells = os.pipe()

    def worker() -> None:
        os.close(goes)
        os.write(tells, b"!")
        os.read(waits, 1)

    def owner() -> None:
        log = DecisionLog(path, "shop")
        forked(worker)
        os.read(told, 1)  # the child is running
        if closed:
            log.close()

    assert forked(owner)() == 0
    DecisionLog(path, "shop").close()
    for end in (waits, goes, told, tells):
        os.close(end)


def test_a_closed_log_is_not_opened_again(path: Path, log: DecisionLog) -> None:
    log.close()
    other = DecisionLog(path, "shop")
    with pytest.raises(LogError, match="closed"):
        log.reopen()
    other.close()
