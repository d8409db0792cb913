"""The replicated log on real engines: what an append, a read and a trim promise, also while nodes are lost."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from escrowmq.replica.engines import EngineLog, open_log
from escrowmq.replica.engines.nats import NatsLog
from escrowmq.replica.errors import AppendUnknown, EntriesTrimmed
from escrowmq.replica.leader import Leader
from escrowmq.replica.tail import LogTail
from tests.engines.nats_nodes import NatsNodes, SeparableNatsNodes
from tests.engines.nodes import PATIENCE, EngineNodes, wait_until
from tests.unit.replica.entries import header
from tests.unit.replica.logs import Copy

TIMEOUT = 30.0
CHUNK = 900_000


@pytest.fixture
def log(url: str) -> Iterator[EngineLog]:
    with closing(open_log(url, timeout=TIMEOUT)) as log:
        yield log


def name_of(url: str) -> str:
    return urlsplit(url).path.strip("/")


def read_all(log: EngineLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    position, end = log.begin(), log.end()
    while position < end:
        entries = log.read(position, 64)
        assert entries, f"nothing at {position} of {end}"
        found.extend(entries)
        position = entries[-1].position + 1
    return found


def assert_kept(log: EngineLog, acknowledged: dict[int, bytes]) -> None:
    """The log has no gap, and every acknowledged entry where the answer said.

    A node that was suspended may tell an older end, until it notices that it leads no more.
    """
    wait_until(lambda: log.end() > max(acknowledged), "the log goes as far as what was acknowledged")
    found = dict(read_all(log))
    assert sorted(found) == list(range(log.begin(), log.end()))
    lost = {position: data for position, data in acknowledged.items() if found.get(position) != data}
    assert not lost


def append_until(log: EngineLog, stopped: Callable[[], bool], acknowledged: dict[int, bytes]) -> int:
    """Append batches, again if there is no answer. Return how often there was none."""
    unknown = serial = 0
    while not stopped():
        batch = [b"%d %d" % (serial, index) for index in range(3)]
        try:
            acknowledged.update(zip(log.append(batch), batch, strict=True))
        except AppendUnknown:
            unknown += 1
        serial += 1
    return unknown


def append_at_last(log: EngineLog, data: bytes, acknowledged: dict[int, bytes]) -> None:
    """Append until that is acknowledged."""

    def appended() -> bool:
        try:
            acknowledged[log.append([data])[0]] = data
        except (AppendUnknown, OSError):
            return False
        return True

    wait_until(appended, "an append is acknowledged")


def open_impatient(url: str, timeout: float) -> EngineLog:
    """Open a log that waits briefly for answers. Where the machine is busy, that does not succeed at once."""
    opened: list[EngineLog] = []

    def opens() -> bool:
        with suppress(OSError):
            opened.append(open_log(url, timeout=timeout))
        return bool(opened)

    wait_until(opens, "the log is opened")
    return opened[0]


def test_an_empty_log_has_neither_begin_nor_end_apart(log: EngineLog) -> None:
    assert (log.begin(), log.end(), log.read(0, 64)) == (0, 0, [])


def test_positions_count_from_zero_without_gaps(log: EngineLog) -> None:
    assert log.append([b"a", b"b", b"c"]) == [0, 1, 2]
    assert log.append([b"d"]) == [3]
    assert (log.begin(), log.end()) == (0, 4)
    assert log.read(1, 2) == [(1, b"b"), (2, b"c")]
    assert log.read(3, 64) == [(3, b"d")]
    assert log.read(4, 64) == []


def test_reading_may_go_back_and_forth(log: EngineLog) -> None:
    log.append([b"%d" % index for index in range(100)])
    for place in (50, 3, 97, 0, 99, 98):
        assert log.read(place, 1) == [(place, b"%d" % place)]


def test_an_entry_is_there_for_another_reader_as_soon_as_it_is_acknowledged(log: EngineLog, url: str) -> None:
    with closing(open_log(url, timeout=TIMEOUT)) as other:
        for index in range(20):
            (position,) = log.append([b"%d" % index])
            assert other.end() == position + 1
            assert other.read(position, 64) == [(position, b"%d" % index)]
            assert other.read(position + 1, 64) == []


def test_glances_continue_a_read_until_everything_was_there(log: EngineLog, url: str) -> None:
    with closing(open_log(url, timeout=TIMEOUT)) as other:
        log.append([b"0"])
        found = other.read(0, 64)
        log.append([b"%d" % index for index in range(1, 200)])

        def all_found() -> bool:
            found.extend(other.glance(found[-1].position + 1, 64))
            return len(found) == 200

        wait_until(all_found, "all entries")
        assert found == [(index, b"%d" % index) for index in range(200)]
        assert other.glance(200, 64) == []


def test_two_appenders_share_the_positions_and_keep_their_orders(log: EngineLog, url: str) -> None:
    own: dict[bytes, list[int]] = {b"one": [], b"two": []}

    def run(which: bytes, appender: EngineLog) -> None:
        for first in range(0, 200, 10):
            own[which] += appender.append([which + b" %d" % index for index in range(first, first + 10)])

    with closing(open_log(url, timeout=TIMEOUT)) as other:
        threads = [threading.Thread(target=run, args=pair) for pair in ((b"one", log), (b"two", other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(own[b"one"] + own[b"two"]) == list(range(400))
    found = dict(read_all(log))
    for which, positions in own.items():
        assert [found[position] for position in positions] == [which + b" %d" % index for index in range(200)]
        assert positions == sorted(positions)


def test_a_frame_of_many_megabytes_passes_in_chunks(log: EngineLog) -> None:
    chunks = [bytes([index]) * CHUNK for index in range(64)]
    assert log.append(chunks) == list(range(64))
    assert [data for _, data in read_all(log)] == chunks


def test_trimmed_entries_are_gone_and_positions_go_on(log: EngineLog) -> None:
    log.append([b"%d" % index for index in range(10)])
    assert log.read(2, 1) == [(2, b"2")]
    log.trim(7)
    assert (log.begin(), log.end()) == (7, 10)
    assert log.read(2, 64) in ([], [(7, b"7"), (8, b"8"), (9, b"9")])
    assert log.read(7, 64) == [(7, b"7"), (8, b"8"), (9, b"9")]
    log.trim(3)
    assert log.begin() == 7
    log.trim(10)
    assert (log.begin(), log.end(), log.read(10, 64)) == (10, 10, [])
    assert log.append([b"next"]) == [10]
    assert log.begin() == 10


def leading(log: EngineLog) -> Leader:
    leader = Leader(log, LogTail.opened(log, Copy()), "a", "amqp://a", lambda: os.urandom(16), chunk_size=4)
    assert leader.take_over()
    return leader


def test_a_leader_trims_its_log_and_every_reader_finds_the_rest(log: EngineLog, url: str) -> None:
    leader = leading(log)
    leader.begin_segment(header(0))
    leader.append_frame(0, [b"old frame"])
    with closing(open_log(url, timeout=TIMEOUT)) as other:
        for lsn in (9, 18, 27):
            leader.begin_segment(header(lsn))
            leader.append_frame(lsn, [b"new frame"])
            leader.put_snapshot(lsn + 9, 6, [b"abcd", b"ef"])
        places = list(leader._tail.segments)
        begin = leader.trim(18)
        assert begin == log.begin() == other.begin() == places[2].position
        tail = LogTail(other, Copy(), places[1].position)
        with pytest.raises(EntriesTrimmed):
            tail.read_to_end()
        for known in ((), places):
            copy = Copy()
            tail = LogTail.opened(other, copy, known)
            tail.read_to_end()
            assert [frame.lsn for frame in copy.frames] == [18, 27][1 if known else 0 :]
            assert tail.fold.state == leader._tail.fold.state
            assert not tail.fold.lacks_snapshot
        leader.append_frame(36, [b"later"])
        tail.read_to_end()
        assert tail.fold.next_lsn == 41
        assert leader.trim(9) == begin, "a log does not grow at its beginning"


def test_the_state_names_the_leader_and_counts_the_copies(log: EngineLog, nodes: EngineNodes) -> None:
    wait_until(lambda: log.state().in_sync == 3, "all replicas are in sync")
    state = log.state()
    assert state.engine == nodes.engine
    assert state.replicas == 3
    assert state.leader


def test_a_log_that_was_closed_answers_with_an_error(url: str) -> None:
    log = open_log(url, timeout=TIMEOUT)
    log.close()
    log.close()
    with pytest.raises((OSError, AppendUnknown)):
        log.append([b"late"])
    with pytest.raises(OSError, match="closed"):
        log.end()


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_appends_go_on_when_the_leading_node_is_lost(how: str, log: EngineLog, url: str, nodes: EngineNodes) -> None:
    acknowledged: dict[int, bytes] = {}
    lost = threading.Event()
    appender = threading.Thread(target=append_until, args=(log, lost.is_set, acknowledged))
    appender.start()
    wait_until(lambda: len(acknowledged) > 30, "appends are acknowledged")
    leader = nodes.leader(name_of(url))
    getattr(nodes, how)(leader)
    known = len(acknowledged)
    try:
        wait_until(lambda: len(acknowledged) > known + 100, "appends go on")
    finally:
        lost.set()
        appender.join(PATIENCE)
        if how == "freeze":
            nodes.thaw(leader)
    assert_kept(log, acknowledged)


@pytest.mark.parametrize("cluster", ["nats"], indirect=True)
def test_appends_are_made_at_the_node_that_leads_the_stream(log: EngineLog, url: str, nodes: EngineNodes) -> None:
    assert isinstance(log, NatsLog)

    def near() -> bool:
        at = log._appender._appender.host
        return at.endswith(f":{nodes.ports[nodes.leader(name_of(url))]}")

    acknowledged: dict[int, bytes] = {}
    stopped = threading.Event()
    appender = threading.Thread(target=append_until, args=(log, stopped.is_set, acknowledged))
    appender.start()
    try:
        log.approach()
        wait_until(near, "appends are made at the leading node")
        first = nodes.leader(name_of(url))
        log._wait(log._stream._ask(f"STREAM.LEADER.STEPDOWN.{name_of(url)}", None))
        wait_until(lambda: nodes.leader(name_of(url)) != first and near(), "appends follow a leader that steps down")
        nodes.kill(nodes.leader(name_of(url)))
        wait_until(near, "appends follow a leader that is killed")
        known = len(acknowledged)
        wait_until(lambda: len(acknowledged) > known + 100, "appends go on")
    finally:
        stopped.set()
        appender.join(PATIENCE)
    assert_kept(log, acknowledged)


@pytest.fixture(scope="module")
def separable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeparableNatsNodes]:
    if (why := SeparableNatsNodes.missing()) is not None:
        pytest.skip(why)
    with SeparableNatsNodes(tmp_path_factory.mktemp("separable")) as nodes:
        yield nodes


@pytest.mark.parametrize("leads", [True, False], ids=["leads the stream", "follows"])
def test_appends_and_reads_leave_a_server_that_is_cut_off_from_the_others(
    separable: SeparableNatsNodes, leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients still reach the server, and it answers their signs of life."""
    name = f"journal-{leads}"
    with closing(open_log(separable.url(name), timeout=TIMEOUT)) as first:
        acknowledged = dict(zip(first.append([b"a", b"b"]), (b"a", b"b"), strict=True))
    leader = separable.leader(name)
    lonely = leader if leads else (leader + 1) % 3
    monkeypatch.setattr(
        "escrowmq.replica.engines.nats.random.sample",
        lambda hosts, _: sorted(hosts, key=lambda host: not host.endswith(f":{separable.ports[lonely]}")),
    )
    with closing(open_log(separable.url(name), timeout=TIMEOUT)) as log:
        assert isinstance(log, NatsLog)
        acknowledged[log.append([b"c"])[0]] = b"c"
        separable.routes.cut_off(lonely)
        try:
            append_at_last(log, b"again", acknowledged)
            assert_kept(log, acknowledged)
            url = log._client.connected_url
            assert url is not None
            assert url.port != separable.ports[lonely]
        finally:
            separable.routes.mend()


@pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))
def test_reads_do_not_wait_for_a_follower_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of NATS pass questions on to the node that is suspended, until they close their connections to it."""
    with NatsNodes(tmp_path, 3) as nodes:
        with closing(open_log(nodes.url("journal"), timeout=TIMEOUT)) as log:
            log.append([b"a", b"b"])
        leader = nodes.leader("journal")
        near = str(nodes.ports[leader])
        monkeypatch.setattr(
            "escrowmq.replica.engines.nats.random.sample",
            lambda hosts, _: sorted(hosts, key=lambda host: not host.endswith(near)),
        )
        with closing(open_log(nodes.url("journal"), timeout=TIMEOUT)) as log:
            wait_until(lambda: log.state().in_sync == 3, "the followers")
            began = time.monotonic()
            for follower in (leader + 1) % 3, (leader + 2) % 3:  # which of them is asked is chance
                nodes.freeze(follower)
                for _ in range(80):
                    assert log.read(1, 1) == [(1, b"b")]
                nodes.thaw(follower)
            assert time.monotonic() - began < 20  # a dozen of these reads wait for an answer that does not come


def test_a_log_is_closed_on_a_thread_that_runs_an_event_loop(url: str) -> None:
    opened = open_log(url, timeout=TIMEOUT)

    async def close() -> None:
        opened.close()

    opened.append([b"a"])
    asyncio.run(close())
    with pytest.raises(OSError, match="closed"):
        opened.append([b"b"])


def test_without_a_quorum_there_is_no_answer_and_with_it_the_log_goes_on(url: str, nodes: EngineNodes) -> None:
    with closing(open_impatient(url, timeout=4.0)) as log:
        acknowledged: dict[int, bytes] = {}
        append_at_last(log, b"a", acknowledged)
        leader = nodes.leader(name_of(url))
        for node in range(3):
            if node != leader:
                nodes.kill(node)
        began = time.monotonic()
        try:
            for index in range(1000):  # what was on its way may still be acknowledged
                data = b"%d" % index
                acknowledged[log.append([data])[0]] = data
            pytest.fail("one node of three acknowledges appends")
        except (AppendUnknown, OSError):
            pass
        assert time.monotonic() - began < PATIENCE
        nodes.start()
        append_at_last(log, b"again", acknowledged)
        assert_kept(log, acknowledged)


def test_without_any_node_every_call_fails_in_its_time(url: str, nodes: EngineNodes) -> None:
    with closing(open_impatient(url, timeout=2.0)) as log:
        append_at_last(log, b"a", {})
        for node in range(3):
            nodes.freeze(node)
        began = time.monotonic()
        with pytest.raises((AppendUnknown, OSError)):
            log.append([b"b"])
        for call in (log.end, log.begin, log.check, log.state, lambda: log.read(1, 1), lambda: log.trim(1)):
            with pytest.raises(OSError, match=nodes.engine):
                call()
        assert time.monotonic() - began < 7 * 10.0
