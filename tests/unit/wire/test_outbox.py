"""Pieces are sent in order within a lane, and only after the log is synced far enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.outbox import LARGE, Outbox


class Log:
    """The log of an outbox."""

    def __init__(self, synced_lsn: int = 0) -> None:
        self.synced_lsn = synced_lsn


def test_a_piece_that_waits_for_nothing_is_sent_immediately() -> None:
    outbox = Outbox(Log())
    outbox.put(1, b"a")
    outbox.put(2, b"b")
    assert outbox.take() == [b"ab"]
    assert outbox.take() == []
    assert outbox.size == 0


def test_a_waiting_piece_holds_back_only_its_lane() -> None:
    outbox = Outbox(Log())
    outbox.put(1, b"a", 10)
    outbox.put(1, b"b")
    outbox.put(2, b"c")
    assert outbox.take() == [b"c"]
    assert (outbox.holding, outbox.size) == (True, 2)
    assert outbox.release(9)
    assert outbox.take() == []
    assert not outbox.release(10)
    assert outbox.take() == [b"ab"]
    assert (outbox.holding, outbox.size) == (False, 0)


def test_a_lane_can_follow_another_one() -> None:
    outbox = Outbox(Log())
    outbox.follow(2, 1)
    outbox.put(2, b"0")
    assert outbox.take() == [b"0"]
    outbox.put(1, b"a", 10)
    outbox.follow(2, 1)
    outbox.put(2, b"b")
    outbox.put(2, b"c")
    assert (outbox.take(), outbox.holds(1), outbox.holds(2), outbox.holds(3)) == ([], True, True, False)
    outbox.release(10)
    assert outbox.take() == [b"abc"]


def test_a_piece_whose_record_is_synced_does_not_wait() -> None:
    outbox = Outbox(Log(10))
    outbox.put(1, b"a", 10)
    assert outbox.take() == [b"a"]
    outbox.put(1, b"b", 11)
    assert outbox.take() == []


def test_pieces_of_the_connection_are_sent_last() -> None:
    outbox = Outbox(Log())
    outbox.put(1, b"a", 10)
    outbox.put(0, b"z")
    outbox.put(2, b"b")
    assert outbox.take() == [b"b"]
    outbox.release(10)
    assert outbox.take() == [b"az"]


def test_a_piece_of_the_connection_follows_all_earlier_pieces() -> None:
    outbox = Outbox(Log())
    outbox.put(1, b"a", 5)
    outbox.put(0, b"y")
    outbox.put(2, b"b", 10)
    outbox.put(0, b"z")
    outbox.release(10)
    assert outbox.take() == [b"aybz"]


def test_a_released_lane_no_longer_waits() -> None:
    outbox = Outbox(Log())
    outbox.put(1, b"a", 5)
    outbox.put(2, b"b", 9)
    outbox.release(5)
    outbox.put(1, b"c")
    outbox.put(2, b"d")
    assert outbox.take() == [b"ac"]
    outbox.release(9)
    assert outbox.take() == [b"bd"]


def test_pieces_without_order_are_sent_immediately() -> None:
    outbox = Outbox(Log())
    outbox.put(1, b"a", 5)
    outbox.put_now(b"!")
    assert (outbox.size, outbox.take(), outbox.size) == (2, [b"!"], 1)


class Model:
    """Numbers every piece, and checks whether an order of sending is allowed."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, int]] = []  # channel, LSN
        self.sent: list[int] = []

    def put(self, channel: int, lsn: int, synced: int) -> None:
        """Add a piece. A piece that waits for the disk also waits for all earlier waiting pieces."""
        if lsn > synced:
            lsn = max([lsn, *(other for _, other in self.pieces)])
        self.pieces.append((channel, lsn))

    def check(self, synced: int) -> None:
        place = {number: i for i, number in enumerate(self.sent)}
        assert len(place) == len(self.sent)
        for number, (channel, lsn) in enumerate(self.pieces):
            if number in place:
                assert lsn <= synced
            for earlier in range(number):
                if self.pieces[earlier][0] == channel or channel == 0:
                    assert number not in place or (earlier in place and place[earlier] < place[number])
            ready = all(
                self.pieces[earlier][1] <= synced
                for earlier in range(number + 1)
                if channel in {0, self.pieces[earlier][0]}
            )
            if ready and 0 not in {self.pieces[n][0] for n in range(number + 1)}:
                assert number in place, "held back without need"


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 3, 6, 9])) | st.integers(1, 10), max_size=40))
def test_any_mix_of_pieces_is_sent_in_an_allowed_order(plan: list[tuple[int, int] | int]) -> None:
    log = Log()
    outbox = Outbox(log)
    model = Model()
    synced = 0
    for step in plan:
        if isinstance(step, int):
            synced = log.synced_lsn = max(synced, step)
            outbox.release(synced)
        else:
            outbox.put(step[0], bytes([len(model.pieces)]), step[1])  # LSNs need not increase
            model.put(*step, synced)
        model.sent += b"".join(outbox.take())
        model.check(synced)
        assert outbox.size == len(model.pieces) - len(model.sent)
    assert not outbox.release(100)
    model.sent += b"".join(outbox.take())
    model.check(100)
    assert len(model.sent) == len(model.pieces)
    assert (outbox.size, outbox.holding) == (0, False)


def test_large_pieces_are_sent_without_copying_and_small_ones_are_joined() -> None:
    outbox = Outbox(Log())
    large, part = bytes(LARGE), memoryview(bytes(2 * LARGE))[LARGE:]
    outbox.put(1, b"a")
    outbox.put_pieces(1, [b"b", large, b"c", b"d", part])
    outbox.put(1, b"e")
    assert outbox.size == 5 + 2 * LARGE
    first, second, third, fourth, fifth = outbox.take()
    assert (first, third, fifth) == (b"ab", b"cd", b"e")
    assert second is large
    assert fourth is part
    assert outbox.size == 0
    outbox.put(1, bytes(LARGE))
    outbox.put(1, b"f")
    assert outbox.take() == [bytes(LARGE) + b"f"], "the whole was put as one piece"


def test_pieces_that_wait_for_the_log_stay_separate() -> None:
    outbox = Outbox(Log())
    large = bytes(LARGE)
    outbox.put_pieces(1, [b"a", large, b"b"], 10)
    outbox.put(2, b"c")
    assert outbox.take() == [b"c"]
    outbox.release(10)
    first, second, third = outbox.take()
    assert (first, third, outbox.size) == (b"a", b"b", 0)
    assert second is large
