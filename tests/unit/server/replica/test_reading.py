"""Which copy of a standby's journal serves a client, and when copies end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest

from escrowmq.admin.operation import OperationRefused
from escrowmq.client.reads import PLAN, TASK
from escrowmq.server.replica import reading as module
from escrowmq.server.replica.reading import ReadingCopies
from escrowmq.server.replica.reading_process import ReadingError, ReadingProcess
from escrowmq.wire.endpoint import Peer

FRAME = b"\x01\x00\x00\x00\x00\x00\x02xx\xce"
"""What a copy sends first, which the client has got from the standby."""


class FakeCopy(ReadingProcess):
    """A copy that sends a frame and its number, and then what it gets."""

    def __init__(self, number: int, lsn: int, asked: float) -> None:
        self.pid_, self.lsn, self.asked, self.clients = number, lsn, asked, 0
        self.ended = self.hangs = self.lingers = False
        self.ends: list[socket.socket] = []

    @property
    def is_alive(self) -> bool:
        return not self.ended or self.lingers

    @property
    def pid(self) -> int:
        return self.pid_

    def connect(self, peer: Peer) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.sendall(b"" if self.hangs else FRAME + b"%d" % self.pid_)
        self.ends.append(theirs)
        ours.setblocking(False)
        return ours

    def kill(self) -> None:
        self.ended = True
        while self.ends:
            self.ends.pop().close()

    async def wait(self) -> None:
        assert self.ended
        if self.lingers:
            await asyncio.sleep(60)


class Site:
    """A standby that copies what the leader confirms. Each new copy takes an iteration of the event loop, or waits."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.refusal = ""
        self.copies: list[FakeCopy] = []
        self.hold: asyncio.Event | None = None
        self.asking: asyncio.Event | None = None
        self.reading = ReadingCopies(self._start, self._synced)
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def _synced(self) -> int:
        if self.refusal:
            raise OperationRefused(self.refusal)
        if self.asking is not None:
            await self.asking.wait()
        return self.confirmed

    async def _start(self) -> FakeCopy:
        copy = FakeCopy(len(self.copies), self.confirmed, asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)
        if self.hold is not None:
            await self.hold.wait()
        self.copies.append(copy)
        return copy

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = (await reader.readline()).decode().strip()
        try:
            await self.reading.serve(kind, b"begun", 1, reader, writer)
        except ReadingError as error:
            writer.write(str(error).encode())
        finally:
            writer.close()

    async def client(self, kind: str) -> tuple[str, asyncio.StreamWriter]:
        """Connect, and return what the client gets first: the number of its copy, or why there is none."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*self._server.sockets[0].getsockname())
        self._writers.append(writer)
        writer.write(kind.encode() + b"\n")
        return (await reader.read(1000)).decode(), writer

    @property
    def ended(self) -> list[bool]:
        """Whether each copy has ended."""
        return [copy.ended for copy in self.copies]

    async def stop(self) -> None:
        """End the copies, and close everything."""
        await self.reading.stop()
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
        await self.left()

    async def left(self) -> None:
        """Let the standby notice which clients have left."""
        await asyncio.sleep(0.1)


def at_a_standby(test: Callable[[Site], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        site = Site()
        try:
            await asyncio.wait_for(test(site), 60)
        finally:
            await site.stop()

    asyncio.run(run())


def test_what_the_client_has_sent_precedes_its_further_bytes_and_the_known_frame_is_left_out() -> None:
    async def test(site: Site) -> None:
        answer, writer = await site.client(PLAN)
        writer.write(b"more")
        await site.left()
        assert answer == "0"
        assert site.copies[0].ends[0].recv(100) == b"begunmore"
        writer.close()

    at_a_standby(test)


def test_a_plan_gets_a_copy_with_all_that_was_confirmed_before() -> None:
    async def test(site: Site) -> None:
        found = []
        for confirmed in (1, 1, 2, 2, 3):
            site.confirmed = confirmed
            found.append(await site.client(PLAN))
        assert [number for number, _ in found] == ["0", "0", "1", "1", "2"]

    at_a_standby(test)


def test_a_task_gets_the_newest_copy_whatever_was_confirmed_since() -> None:
    async def test(site: Site) -> None:
        clients = [await site.client(TASK)]
        site.confirmed = 1
        clients += [await site.client(TASK), await site.client(PLAN), await site.client(TASK)]
        assert [number for number, _ in clients] == ["0", "0", "1", "1"]

    at_a_standby(test)


def test_plans_that_come_while_a_copy_is_made_share_the_next_one() -> None:
    async def test(site: Site) -> None:
        site.hold = asyncio.Event()
        first = asyncio.ensure_future(site.client(PLAN))
        await site.left()
        site.confirmed = 1
        others = [asyncio.ensure_future(site.client(PLAN)) for _ in range(5)]
        await site.left()
        site.hold.set()
        found = [await each for each in (first, *others)]
        assert [number for number, _ in found] == ["0", *["1"] * 5]

    at_a_standby(test)


def test_an_older_copy_ends_with_its_last_client() -> None:
    async def test(site: Site) -> None:
        clients = [await site.client(PLAN), await site.client(PLAN)]
        site.confirmed = 1
        newer = await site.client(PLAN)
        clients[0][1].close()
        await site.left()
        assert site.ended == [False, False]
        clients[1][1].close()
        await site.left()
        assert site.ended == [True, False]
        newer[1].close()

    at_a_standby(test)


def test_the_newest_copy_ends_some_time_after_its_last_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.3)

    async def test(site: Site) -> None:
        _, writer = await site.client(PLAN)
        await asyncio.sleep(0.5)
        assert site.ended == [False]
        writer.close()
        await site.left()
        assert site.ended == [False]
        _, writer = await site.client(PLAN)
        await asyncio.sleep(0.5)
        assert site.ended == [False]
        writer.close()
        await asyncio.sleep(0.6)
        assert site.ended == [True]
        assert (await site.client(TASK))[0] == "1"

    at_a_standby(test)


def test_the_oldest_of_too_many_copies_ends() -> None:
    async def test(site: Site) -> None:
        for _ in range(module.MOST + 1):
            site.confirmed += 1
            await site.client(PLAN)
        assert site.ended == [True, *[False] * module.MOST]

    at_a_standby(test)


def test_a_copy_that_has_ended_is_replaced() -> None:
    async def test(site: Site) -> None:
        await site.client(PLAN)
        site.copies[0].kill()
        assert (await site.client(TASK))[0] == "1"

    at_a_standby(test)


def test_a_task_does_not_get_a_copy_that_is_older_than_one_that_has_ended() -> None:
    async def test(site: Site) -> None:
        older = await site.client(PLAN)
        site.confirmed = 1
        newer = await site.client(PLAN)
        site.copies[1].kill()
        assert (await site.client(TASK))[0] == "2"
        assert (older[0], newer[0]) == ("0", "1")

    at_a_standby(test)


def test_a_task_does_not_get_an_older_copy_because_the_newest_had_no_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.3)

    async def test(site: Site) -> None:
        older = await site.client(PLAN)
        site.confirmed = 1
        (await site.client(PLAN))[1].close()
        await asyncio.sleep(0.6)
        assert site.ended == [False, True]
        assert (await site.client(TASK))[0] == "2"
        older[1].close()

    at_a_standby(test)


def test_a_copy_that_ends_while_a_plan_asks_what_is_confirmed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.3)

    async def test(site: Site) -> None:
        (await site.client(PLAN))[1].close()
        await site.left()
        site.copies[0].lingers = True  # as a process does that was killed just now
        site.asking = asyncio.Event()
        second = asyncio.ensure_future(site.client(PLAN))
        await asyncio.sleep(0.6)
        assert site.ended == [True]
        site.asking.set()
        assert (await second)[0] == "1"

    at_a_standby(test)


def test_a_copy_that_greets_nobody_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)

    async def test(site: Site) -> None:
        await site.client(PLAN)
        site.copies[0].hangs = True
        assert "has not answered for 0.2 s" in (await site.client(TASK))[0]
        assert site.ended == [True]
        assert (await site.client(TASK))[0] == "1"

    at_a_standby(test)


def test_a_client_is_told_why_no_copy_can_be_made() -> None:
    async def test(site: Site) -> None:
        site.refusal = "this node still reads the replicated log"
        assert (await site.client(PLAN))[0] == site.refusal
        site.refusal = ""
        assert (await site.client(PLAN))[0] == "0"

    at_a_standby(test)


def test_no_more_clients_than_the_limit_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CLIENTS", 2)

    async def test(site: Site) -> None:
        clients = [await site.client(PLAN) for _ in range(2)]
        assert "no more than 2 connections" in (await site.client(PLAN))[0]
        clients[0][1].close()
        await site.left()
        assert (await site.client(PLAN))[0] == "0"

    at_a_standby(test)


def test_copies_of_files_that_change_are_replaced() -> None:
    async def test(site: Site) -> None:
        await site.client(PLAN)
        site.reading.end()
        assert site.ended == [True]
        assert (await site.client(TASK))[0] == "1"

    at_a_standby(test)


def test_a_copy_that_is_made_while_files_change_serves_nobody() -> None:
    async def test(site: Site) -> None:
        site.hold = asyncio.Event()
        first = asyncio.ensure_future(site.client(PLAN))
        await site.left()
        site.reading.end()
        site.hold.set()
        assert "have changed while they were read" in (await first)[0]
        assert site.ended == [True]
        assert (await site.client(TASK))[0] == "1"

    at_a_standby(test)


def test_all_copies_end_at_once_when_the_node_leads_or_stops() -> None:
    async def test(site: Site) -> None:
        for _ in range(2):
            site.confirmed += 1
            await site.client(PLAN)
        await site.reading.stop()
        assert all(site.ended)

    at_a_standby(test)


def test_a_copy_that_ends_slowly_does_not_keep_the_node_from_leading() -> None:
    async def test(site: Site) -> None:
        await site.client(PLAN)
        site.copies[0].lingers = True
        await asyncio.wait_for(site.reading.stop(), 10)

    at_a_standby(test)
