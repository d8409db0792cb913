"""After any history, crash or flipped bit, the journal recovers a prefix that contains everything it guaranteed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.journal import errors, journal, recovery
from escrowmq.journal import format as fmt
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.storage import Storage
from escrowmq.journal.writer import write_footer
from tests.property.journal_model import WEIGHTS, Broker, History, Op, Unreadable, World, random_ops, violations

OPS = st.lists(st.tuples(st.sampled_from(list(WEIGHTS)), st.integers(0, 2999)), max_size=60)
SEEDS = st.integers(0, 2**32)
PEACEFUL = ("put", "put", "put", "settle", "flush", "flush", "snapshot", "housekeep", "compact", "close")


@pytest.mark.rule("DUR-1")
@pytest.mark.rule("DUR-2")
@pytest.mark.rule("DUR-3")
@pytest.mark.rule("ORD-5")
@given(OPS, SEEDS)
@settings(max_examples=300)
def test_recovery_is_a_prefix_that_holds_everything_synced(ops: list[Op], seed: int) -> None:
    World(seed).run(ops)


@pytest.mark.rule("DUR-1")
@pytest.mark.rule("DUR-3")
@pytest.mark.rule("ORD-5")
def test_long_histories_by_seed() -> None:
    assert next(violations(range(300), ops=100), None) is None


@pytest.mark.long
def test_very_many_histories_by_seed() -> None:
    assert next(violations(range(1000, 200_000), ops=150), None) is None


def damage(seed: int, ops: list[Op], *, closed: bool, hurt: Callable[[MemoryStorage, random.Random], None]) -> str:
    """Run a history without crashes, damage the medium, and restart.

    Returns the result; raises if it is not allowed.
    """
    world = World(seed)
    for op in ops:
        world.step(op)
    world.broker.flush(1000)
    if closed:
        world.broker.journal.close()
    storage, history = world.storage, world.history
    assert history.synced == history.count
    hurt(storage, random.Random(seed))
    try:
        broker = Broker(storage, history)
    except (errors.JournalDamaged, errors.JournalVersionUnknown):
        return "refused"
    found = broker.number
    try:
        broker.verify(allow_loss=True)
    except Unreadable:
        return "refused when read"
    if found == history.synced and not broker.journal.recovery.cut_file:
        return "unharmed"
    assert broker.journal.recovery.cut_file is not None
    assert broker.journal.recovery.cut_bytes > 0
    return "cut"


def flip(storage: MemoryStorage, rng: random.Random) -> None:
    names = storage.names()
    if names:
        name = rng.choice(names)
        storage.flip(name, rng.randrange(8 * filled(storage, name)))


def filled(storage: Storage, name: str) -> int:
    return len(storage.read(name, 0, storage.size(name)).rstrip(b"\0")) + 8


def shorten(storage: MemoryStorage, rng: random.Random) -> None:
    sealed = [name for name in storage.names() if JournalFile(storage, name).footer is not None]
    if sealed:
        name = rng.choice(sealed)
        storage.shorten(name, rng.randrange(storage.size(name)))


def lose(storage: MemoryStorage, rng: random.Random) -> None:
    names = storage.names()
    if len(names) > 1:
        storage.delete(names[rng.randrange(len(names) - 1)])


PEACE = st.lists(st.tuples(st.sampled_from(PEACEFUL), st.integers(0, 2999)), max_size=40)


@pytest.mark.rule("DUR-3")
@given(PEACE, SEEDS, st.booleans())
@settings(max_examples=300)
def test_a_flipped_bit_is_refused_or_cut_and_reported(ops: list[Op], seed: int, closed: bool) -> None:
    damage(seed, ops, closed=closed, hurt=flip)


@pytest.mark.rule("DUR-3")
def test_flipped_bits_meet_every_way_of_being_handled() -> None:
    seen = set()
    for seed in range(400):
        rng = random.Random(seed)
        ops = [(rng.choice(PEACEFUL), rng.randrange(3000)) for _ in range(40)]
        seen.add(damage(seed, ops, closed=seed % 2 == 0, hurt=flip))
    assert seen == {"refused", "refused when read", "unharmed", "cut"}


@pytest.mark.rule("DUR-3")
@given(PEACE, SEEDS)
@settings(max_examples=100)
def test_a_short_file_is_refused_or_cut_and_reported(ops: list[Op], seed: int) -> None:
    damage(seed, ops, closed=True, hurt=shorten)


@pytest.mark.rule("DUR-3")
@given(PEACE, SEEDS)
@settings(max_examples=100)
def test_a_lost_file_is_refused_unless_nothing_in_it_lives(ops: list[Op], seed: int) -> None:
    assert damage(seed, ops, closed=True, hurt=lose) != "cut"


WITHOUT_MOVES = [name for name in PEACEFUL if name != "compact"]  # moves count as operations


@pytest.mark.rule("ORD-5")
@given(st.lists(st.tuples(st.sampled_from(WITHOUT_MOVES), st.integers(0, 2999)), max_size=60), SEEDS)
@settings(max_examples=100)
def test_snapshot_and_rest_equal_the_full_replay(ops: list[Op], seed: int) -> None:
    found = []
    for left_out in ((), ("snapshot", "housekeep")):
        world = World(seed)
        for op in ops:
            if op[0] not in left_out:
                world.step(op)
        world.step(("close", 0))
        found.append((world.broker.number, world.history.states[-1]))
    assert found[0] == found[1]


def without_checksum(header: fmt.FrameHeader, body: bytes | memoryview) -> bool:
    return len(body) == header.body_size


def without_repair(storage: Storage, found: recovery.Found) -> None:
    """Plant a bug: trust the page cache after a failed sync, and leave the torn tail in place."""


def sealed_by_one_sync(storage: Storage, found: recovery.Found) -> None:
    """Plant a bug: write the footer before the last frame is synced."""
    file, footer, frame = found.last_file, found.last_footer, found.last_frame
    if file is not None and footer is not None and footer.frames:
        if frame is not None:
            offset = file.offset_of(frame.lsn)
            storage.write(file.name, offset, storage.read(file.name, offset, frame.end_lsn - frame.lsn))
        write_footer(storage, file.name, file.header, footer)


def behind_the_torn_tail(storage: Storage, *, chain_contents: bool = False) -> recovery.Found:
    """Plant a bug: continue where the garbage ends, like a program that opens its log for appending."""
    found = recovery.examine(storage, chain_contents=chain_contents)
    report = found.report
    if report.cut_file is not None and found.last_file is not None:
        end = report.cut_offset + report.cut_bytes - fmt.FILE_HEADER_SIZE
        found.end_lsn = found.last_file.origin + end + fmt.pad(end)
    return found


_write_through = MemoryStorage.write_through


def retry_sync(self: MemoryStorage, name: str, offset: int, *parts: bytes) -> None:
    try:
        _write_through(self, name, offset, *parts)
    except OSError:
        self.sync(name)


@pytest.mark.rule("DUR-2")
@pytest.mark.rule("DUR-3")
@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        pytest.param(fmt, "body_is_whole", without_checksum, id="no CRC check"),
        pytest.param(journal, "examine", behind_the_torn_tail, id="no truncation of the torn tail"),
        pytest.param(journal, "repair", without_repair, id="no repair after a restart"),
        pytest.param(journal, "repair", sealed_by_one_sync, id="a footer before the sync of the frames"),
        pytest.param(MemoryStorage, "write_through", retry_sync, id="retry after a failed sync"),
        pytest.param(MemoryStorage, "write_through", MemoryStorage.write, id="answer before the sync"),
    ],
)
def test_planted_bugs_are_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, planted: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, planted)
    assert next(violations(range(200)), None) is not None


def test_the_same_seed_gives_the_same_bytes() -> None:
    def disk(seed: int) -> dict[str, bytes]:
        world = World(seed)
        world.run(random_ops(random.Random(seed), 80))
        return {name: world.storage.read(name, 0, world.storage.size(name)) for name in world.storage.names()}

    assert disk(7) == disk(7)
    assert disk(7) != disk(8)


def test_history_of_the_model_is_cut_where_it_is_asked_to() -> None:
    history = History([{}, {1: b"a"}, {}], synced=1)
    history.cut(1)
    assert (history.count, history.synced, history.states[-1]) == (1, 1, {1: b"a"})
