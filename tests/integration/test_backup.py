"""`escrowmq backup` and `escrowmq restore` beside a real broker: states in doubt, refusals, a full disk."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import escrowmq.client as mq
from escrowmq.admin.socket.client import ask
from escrowmq.client import Properties
from escrowmq.core.broker import Broker
from escrowmq.core.recovery.snapshot import Capture
from escrowmq.journal.journal import Journal
from escrowmq.journal.storage import FileStorage
from escrowmq.server.start import recover
from tests.broker import BrokerProcess, running_broker, wait_until

DURABLE = Properties(delivery_mode=2)
SMALL = "[journal]\nsegment_bytes = '1MiB'\nsnapshot_bytes = '1MiB'\n"


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def escrowmq(*args: object) -> Done:
    command = [sys.executable, "-m", "escrowmq", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def following(directory: Path, broker: BrokerProcess) -> Iterator[subprocess.Popen[str]]:
    """Run a process that keeps a copy up; it is killed at the end. Its first line on stderr has been read."""
    command = [sys.executable, "-m", "escrowmq", "backup", str(directory), "--data-dir", str(broker.data_dir)]
    process = subprocess.Popen(
        [*command, "--follow", "--interval", "20ms"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    with process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("following")
            yield process
        finally:
            process.kill()


def small(folder: Path) -> BrokerProcess:
    config = folder / "small.toml"
    config.write_text(SMALL, encoding="utf-8")
    return running_broker(folder, "--config", str(config))


def work(broker: BrokerProcess, count: int = 300, size: int = 6000) -> None:
    """Leave messages, deliveries in a transaction, and a branch in doubt."""
    with mq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        for i in range(count):
            channel.basic_publish("", "q", b"%d" % i + bytes(size), DURABLE)
        channel.tx_commit()
    with mq.connect(broker.url) as connection, connection.channel() as channel:
        xid = mq.xid(1, b"order-%d" % random.randrange(1 << 30), b"mq")
        connection.tpc_begin(xid)
        method, _, _ = channel.basic_get("q")
        assert method is not None
        channel.basic_publish("", "q", b"withheld", DURABLE)
        channel.basic_ack(method.delivery_tag)
        connection.tpc_prepare()


def state(data_dir: Path) -> list[tuple[int, bytes]]:
    """Return the state that a broker would recover from a data directory, as the records of a snapshot."""
    folder = data_dir.with_name(data_dir.name + "-copy")
    shutil.copytree(data_dir, folder, ignore=shutil.ignore_patterns("admin.sock"))
    storage = FileStorage(folder)
    journal = Journal.open(storage)
    broker = Broker(journal, random.Random(1))
    recover(journal, broker)
    capture = Capture(broker)
    while not capture.step():
        pass
    records = [(int(kind), b"".join(parts)) for kind, parts in capture.records()]
    journal.close()
    shutil.rmtree(folder)
    return records


@pytest.mark.rule("DUR-1")
def test_a_restored_broker_has_everything(tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored" / "data"
    with small(tmp_path) as broker:
        work(broker)
        first = escrowmq("backup", backup, "--data-dir", broker.data_dir, "--json")
        assert first.code == 0, first.err
        work(broker, count=50)
        second = escrowmq("backup", backup, "--data-dir", broker.data_dir, "--json")
        assert second.code == 0, second.err
        assert 0 < json.loads(second.out)["copied_bytes"] < json.loads(first.out)["copied_bytes"]
        broker.kill()
        assert escrowmq("restore", backup, "--check").code == 0
        done = escrowmq("restore", backup, "--data-dir", restored)
        assert done.code == 0, done.err
        assert state(restored) == state(broker.data_dir)
    with running_broker(tmp_path / "restored") as again:
        assert len(ask(again.data_dir, "tx.list")) == 2
        (queue,) = [row for row in ask(again.data_dir, "queue.list") if row["name"] == "q"]
        assert (queue["ready"], queue["locked"], queue["withheld"]) == (348, 2, 2)


def test_a_stopped_or_killed_broker_is_backed_up_too(tmp_path: Path) -> None:
    with small(tmp_path) as broker:
        work(broker)
        broker.kill()
        backup = tmp_path / "backup"
        for number in range(2):
            assert escrowmq("backup", backup, "--data-dir", broker.data_dir).code == 0
            assert escrowmq("restore", backup, "--data-dir", tmp_path / f"{number}").code == 0
            assert state(tmp_path / f"{number}") == state(broker.data_dir)
            broker.start()
            assert broker.terminate() == 0


def test_refusals_are_one_line_and_leave_everything_as_it_was(tmp_path: Path) -> None:
    with small(tmp_path) as broker:
        work(broker, 3)
        data, backup, other = broker.data_dir, tmp_path / "backup", tmp_path / "other"
        other.mkdir()
        (other / "letter.txt").touch()
        assert escrowmq("backup", backup, "--data-dir", data).code == 0
        for args, text in [
            (("backup", other, "--data-dir", data), f"{other} is not empty and holds no backup (it has letter.txt)"),
            (("backup", data / "backup", "--data-dir", data), "inside the data directory"),
            (("backup", backup, "--data-dir", tmp_path / "none"), f"there is no data directory {tmp_path / 'none'}"),
            (("backup", tmp_path / "new", "--data-dir", other), f"there is no journal in {other}"),
            (("restore", backup, "--data-dir", data), f"uses the data directory {data}; restore into an empty one"),
            (("restore", data, "--check"), f"{data} is the data directory of a broker and no backup"),
            (("restore", data, "--data-dir", tmp_path / "new2"), f"{data} is the data directory of a broker"),
            (("restore", backup, "--data-dir", other), "is not empty (it has letter.txt)"),
            (("restore", other, "--data-dir", tmp_path / "new2"), "there is no backup"),
            (("restore", tmp_path / "none", "--check"), f"there is no directory {tmp_path / 'none'}"),
            (("serve", "--data-dir", backup, "--listen", "127.0.0.1:0"), "is a backup, which a broker would change"),
        ]:
            done = escrowmq(*args)
            assert (done.code, done.err.count("\n"), done.out) == (1, 1, ""), (args, done)
            assert text in done.err
        assert [each.name for each in other.iterdir()] == ["letter.txt"]
        assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["backup", "data", "other"]
        assert escrowmq("restore", backup, "--check").code == 0


def test_the_backup_of_another_broker_is_not_overwritten(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with running_broker(tmp_path / name):
            pass
    assert escrowmq("backup", backup, "--data-dir", tmp_path / "one" / "data").code == 0
    done = escrowmq("backup", backup, "--data-dir", tmp_path / "two" / "data")
    assert done.code == 1
    assert "another broker's journal" in done.err
    assert f"; {backup} still holds the backup as of" in done.err
    assert escrowmq("restore", backup, "--check").code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_data_directory_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.data_dir.chmod(0)
        try:
            done = escrowmq("backup", tmp_path / "backup", "--data-dir", broker.data_dir)
        finally:
            broker.data_dir.chmod(0o700)
        assert done.code == 1
        assert "Permission denied" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_a_full_disk_is_told_and_the_last_backup_stays_whole(tmp_path: Path) -> None:
    target = tmp_path / "disk"
    target.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", target], check=False)
    if mounted.returncode:
        pytest.skip("this machine cannot mount a small file system")
    try:
        with small(tmp_path) as broker:
            work(broker, 100)
            first = escrowmq("backup", target, "--data-dir", broker.data_dir)
            assert first.code == 0, first.err
            with following(target, broker) as follower:
                work(broker, 2000)
                _, told = follower.communicate(timeout=60)
            assert follower.returncode == 1
            assert "are free" in told
            assert f"; {target} still holds the backup as of" in told
            assert escrowmq("restore", target, "--check").code == 0
            done = escrowmq("backup", target, "--data-dir", broker.data_dir)
            assert done.code == 1
            assert escrowmq("restore", target, "--check").code == 0
    finally:
        subprocess.run(["umount", "-l", target], check=True)


def test_a_damaged_copy_is_found_and_not_called_whole(tmp_path: Path) -> None:
    with small(tmp_path) as broker:
        work(broker)
        backup = tmp_path / "backup"
        assert escrowmq("backup", backup, "--data-dir", broker.data_dir).code == 0
        file = min(backup.glob("*.log"))
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        done = escrowmq("backup", backup, "--data-dir", broker.data_dir)
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            f"escrowmq: cannot back up {broker.data_dir} to {backup}: the backup is damaged: {file.name} has changed "
            "since it was copied; make a new backup in an empty directory\n"
        )


def test_a_follower_waits_for_the_first_start_of_its_broker(tmp_path: Path) -> None:
    broker, backup = BrokerProcess(tmp_path), tmp_path / "backup"
    command = [sys.executable, "-m", "escrowmq", "backup", str(backup), "--data-dir", str(broker.data_dir), "--follow"]
    with subprocess.Popen([*command, "--interval", "20ms"], stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stderr is not None
        told = follower.stderr.readline()
        assert told == f"there is no journal in {broker.data_dir} yet; waiting until a broker starts there\n"
        with broker.start():
            while not (told := follower.stderr.readline()).startswith("following"):
                assert told.startswith("the copy stays as it is until a broker answers")
            follower.terminate()
            assert follower.wait(60) == 0
    assert escrowmq("restore", backup, "--check").code == 0


def test_a_follower_that_waits_for_a_first_start_can_be_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "escrowmq", "backup", f"{tmp_path}/backup", "--data-dir", f"{tmp_path}/data"]
    with subprocess.Popen([*command, "--follow"], stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stderr is not None
        assert follower.stderr.readline().startswith("there is no journal")
        follower.terminate()
        assert follower.communicate(timeout=60)[1] == "stopped; nothing was copied\n"
    assert follower.returncode == 0
    assert not list(tmp_path.iterdir())


def test_two_backups_into_one_directory_are_refused(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        backup = tmp_path / "backup"
        with following(backup, broker) as follower:
            assert "is writing or restoring" in escrowmq("backup", backup, "--data-dir", broker.data_dir).err
            assert "another process is writing this backup" in escrowmq("restore", backup, "--check").err
            before = listed(backup)["as_of_us"]
            wait_until(lambda: listed(backup)["as_of_us"] > before)
            follower.terminate()
            _, told = follower.communicate(timeout=60)
        assert "stopped; the copy has everything confirmed before" in told
        assert follower.returncode == 0
        assert listed(backup)["as_of_us"] <= time.time_ns() // 1000


def test_a_follower_waits_for_its_broker(tmp_path: Path) -> None:
    with small(tmp_path) as broker:
        backup = tmp_path / "backup"
        with following(backup, broker) as follower:
            assert follower.stderr is not None
            broker.kill()
            assert follower.stderr.readline().startswith("the copy stays as it is until a broker answers")
            broker.start()
            assert follower.stderr.readline().startswith("following")
            work(broker, 20)
            end = ask(broker.data_dir, "journal.synced")
            wait_until(lambda: listed(backup)["end_lsn"] >= end)
            broker.kill()
        assert escrowmq("restore", backup, "--data-dir", tmp_path / "again").code == 0
        assert state(tmp_path / "again") == state(broker.data_dir)


def listed(backup: Path) -> Any:
    """Return the manifest of a backup."""
    return json.loads((backup / "backup.json").read_text(encoding="utf-8"))
