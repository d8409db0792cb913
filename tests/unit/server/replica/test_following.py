"""A standby's place in the log: a start goes on where the last one was, and an empty node copies what lives."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from escrowmq.journal.format import TYPE_SEGMENT, FileHeader, segment_name
from escrowmq.journal.storage import FileStorage
from escrowmq.replica.entries import Stamp, decode, encode
from escrowmq.replica.log import StoredEntry
from escrowmq.server.replica import following as module
from escrowmq.server.replica.follower import Follower
from escrowmq.server.replica.following import COPYING
from tests.unit.replica.logs import Log
from tests.unit.replica.test_copy import contents
from tests.unit.replica.test_live_map import pinned
from tests.unit.server.replica.standbys import close_newest, led_by_another, read, standby


def test_a_start_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    log = Log()
    first = standby(log, tmp_path)
    assert first.run()
    storage = first._following._storage
    assert isinstance(storage, FileStorage)
    leader = first.leader
    for i in range(3):
        header = FileHeader(TYPE_SEGMENT, bytes(16), first.tail.fold.next_lsn, i).pack()
        leader.begin_segment(header)
        (tmp_path / segment_name(first.tail.fold.next_lsn)).write_bytes(header)
        leader.append_frame(first.tail.fold.next_lsn, [bytes(48)])
    first.write_places()
    storage.close()
    again = standby(log, tmp_path)
    assert again.tail.position == first.tail.segments[-1].position > 0
    other = Follower(log, "another log", again._following._storage, "n1", "amqp://n1", 1, chain_contents=False)
    assert other.tail.position == 0


class Shortsighted(Log):
    """A log that shows nothing at a glance."""

    def glance(self, _position: int, _most: int) -> list[StoredEntry]:
        """Return nothing."""
        return []


def test_a_log_that_is_opened_again_is_read_to_its_end_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_SECONDS", 3600.0)
    log = Shortsighted()
    leader = led_by_another(log)
    following = standby(log, tmp_path, lease=3600)._following
    for _ in range(2):
        following.open(())
        assert following.read_on()
        assert following.tail.position == log.end()
    leader.prove()
    assert not following.read_on()


def test_take_overs_are_known_after_a_start(tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log)
    leader.begin_segment(FileHeader(TYPE_SEGMENT, bytes(16), 0, 0).pack())
    follower = standby(log, tmp_path, lease=3600)
    read(follower)
    follower.write_places()
    close_newest()
    again = standby(log, tmp_path, lease=3600)
    read(again)
    assert again.take_overs() == follower.take_overs() != []


class TestAnEmptyNode:
    """It copies what lives alone, if the log has a map of that."""

    def followed(self, log: Log, folder: Path) -> dict[str, bytes]:
        """Let a node follow once, and return its files."""
        follower = standby(log, folder, lease=3600)
        done = threading.Event()
        thread = threading.Thread(target=follower.run, args=(done.set,), daemon=True)
        thread.start()
        assert done.wait(30)
        follower.stop()
        thread.join(30)
        return {path.name: path.read_bytes().rstrip(b"\0") for path in folder.iterdir()}

    def test_it_has_the_segments_of_the_leader(self, tmp_path: Path) -> None:
        log, leader, _ = pinned()
        found = self.followed(log, tmp_path)
        for name, data in contents(leader.disk).items():
            assert found[name] == data
        assert COPYING not in found

    def test_a_copy_that_was_interrupted_begins_anew(self, tmp_path: Path) -> None:
        log, leader, _ = pinned()
        (tmp_path / COPYING).touch()
        name = next(name for name in leader.disk.names() if name.endswith(".log"))
        (tmp_path / name).write_bytes(leader.disk.read(name, 0, 64) + b"torn")
        found = self.followed(log, tmp_path)
        assert found[name] == contents(leader.disk)[name]
        assert COPYING not in found

    def test_a_map_that_does_not_count_makes_it_read_the_whole_log(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        log, leader, _ = pinned()
        at = leader.tail.fold.map - log.first
        log.stored[at] = encode(replace(decode(log.stored[at]), stamp=Stamp(0, bytes(8), 1)))
        found = self.followed(log, tmp_path)
        assert "this node reads the log again" in caplog.text
        for name, data in contents(leader.disk).items():
            assert found[name] == data


def test_who_reads_the_files_is_told_before_they_lose_what_had_counted(tmp_path: Path) -> None:
    told: list[str] = []
    follower = standby(Log(), tmp_path)
    follower.view.on_diverged = lambda: told.append("diverged")
    follower.copy._events.cut(5, 1)
    assert not told
    follower.copy._events.diverged(5, 1, ["0000000000000000.log.diverged"])
    assert told == ["diverged"]
