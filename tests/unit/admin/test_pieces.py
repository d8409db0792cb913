"""Work is cut into pieces by its steps, and other work of the event loop runs between the pieces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

from escrowmq.admin.pieces import BURST, PAUSE_SECONDS, Pieces, carried_out
from tests.unit.admin.processes import FakeProcess
from tests.unit.wire.amqp091.clients import pair


def counting(steps: int) -> Generator[int, None, str]:
    yield from range(steps)
    return "done"


def test_a_piece_is_so_many_steps_and_none_follows_the_last() -> None:
    async def pieces() -> list[list[int] | None]:
        pieces, work = Pieces(2), counting(5)
        return [await pieces.piece(work) for _ in range(4)]

    assert asyncio.run(pieces()) == [[0, 1], [2, 3], [4], None]


def test_the_result_of_work_is_its_return_value() -> None:
    assert asyncio.run(Pieces(2).result(counting(5))) == "done"
    assert asyncio.run(Pieces(2).result(counting(0))) == "done"


def test_each_iteration_of_the_event_loop_does_one_piece_whatever_the_number_of_operations() -> None:
    done: list[int] = []

    def steps(each: int) -> Generator[None, None, None]:
        for _ in range(20):
            done.append(each)
            yield

    async def test() -> list[int]:
        pieces = Pieces(5)
        tasks = [asyncio.ensure_future(pieces.result(steps(each))) for each in range(3)]
        grown = []
        while not all(task.done() for task in tasks):
            before = len(done)
            await asyncio.sleep(0)
            grown.append(len(done) - before)
        return grown

    grown = asyncio.run(test())
    assert max(grown) == 5
    assert sum(grown) == 60
    assert done[:15] == [0] * 5 + [1] * 5 + [2] * 5, "the operations take turns"


def test_the_event_loop_rests_after_a_burst_of_pieces_of_all_operations() -> None:
    pieces = Pieces(1)

    async def test() -> float:
        begin = time.monotonic()
        await asyncio.gather(*(pieces.result(counting(4 * BURST - 1)) for _ in range(2)))
        return time.monotonic() - begin

    assert asyncio.run(test()) >= 0.9 * 2 * 4 * PAUSE_SECONDS, "each operation is four bursts, with that of its end"


def test_a_request_of_the_core_gets_one_piece_in_each_turn() -> None:
    server, _ = pair()
    process, requests = FakeProcess(server), server.broker.engine.requests
    done: list[int] = []
    server.broker.engine.at_each_turn(lambda: done.append(-1))

    def request() -> Generator[bool | None, None, str]:
        for i in range(6):
            done.append(i)
            requests.left -= requests.turn // 2
            yield True if i == 1 else None
        return "result"

    assert asyncio.run(carried_out(process, request())) == "result"
    assert done == [0, 1, -1, 2, 3, -1, 4, 5, -1]
