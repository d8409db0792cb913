"""Journals of every version of the format can be opened, continued and audited; one of each is kept beside this file.

Each was written by the broker of its version: three persistent messages with properties of their own, a run of five
equal ones, one rejection into a dead-letter queue, one acknowledgement, and one transaction.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091.properties import Properties
from tests.harness.client import SimClient
from tests.harness.server import SimServer
from tests.pipeline.direct import audited, export

KEPT = sorted((Path(__file__).parent / "journals").iterdir())


def storage_of(folder: Path) -> MemoryStorage:
    """Return the files of a kept journal on a simulated disk."""
    storage = MemoryStorage(random.Random(1))
    for file in folder.iterdir():
        storage.create(file.name)
        storage.write(file.name, 0, file.read_bytes())
        storage.sync(file.name)
    return storage


def properties(number: int) -> bytes:
    return Properties(delivery_mode=2, message_id=f"m{number}", headers={"n": number}).encode()


def opened(storage: MemoryStorage) -> SimClient:
    client = SimClient(SimServer(storage))
    client.open_channel(1)
    return client


def taken(client: SimClient, queue: str) -> list[tuple[bytes, bytes]]:
    found = []
    while (message := client.get(1, queue, no_ack=True)) is not None:
        found.append((message.header, message.body))
    return found


def test_one_of_each_version_is_kept() -> None:
    assert [folder.name for folder in KEPT] == [f"version-{n}" for n in range(fmt.OLDEST_VERSION, fmt.VERSION + 1)]
    for folder in KEPT:
        for file in folder.iterdir():
            assert f"version-{fmt.read_file_header(file.name, file.read_bytes()).version}" == folder.name


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_it_opens_with_everything_that_it_holds(folder: Path) -> None:
    client = opened(storage_of(folder))
    plain = Properties(delivery_mode=2).encode()
    assert taken(client, "q") == [
        (properties(2), b"own 2"),
        *[(plain, b"same %d" % n) for n in range(5)],
        (properties(9), b"tx"),
    ]
    ((header, body),) = taken(client, "dead")
    assert body == b"own 0"
    found = Properties.decode(header)
    assert found.message_id == "m0"
    assert found.headers is not None
    assert found.headers["x-first-death-reason"] == "rejected"


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_an_old_journal_continues_in_the_present_version(folder: Path) -> None:
    storage = storage_of(folder)
    client = opened(storage)
    for number in range(10, 13):
        client.publish(1, "q", b"later", header=properties(number))
    client = opened(storage)
    assert taken(client, "q")[-3:] == [(properties(number), b"later") for number in range(10, 13)]
    versions = [fmt.read_file_header(name, storage.read(name, 0, 64)).version for name in sorted(storage.names())]
    assert versions[-1] == fmt.VERSION


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_it_is_audited(folder: Path, tmp_path: Path) -> None:
    storage = storage_of(folder)
    client = opened(storage)
    for number in range(10, 13):
        client.publish(1, "q", b"later", header=properties(number))
    found = audited(export(storage, tmp_path / "journal"))
    assert found.wrong == []
    sizes = sorted(row["bytes"] for row in found.messages)
    assert sizes == sorted(map(len, [b"own 0"] * 4 + [b"same 0"] * 5 + [b"tx"] + [b"later"] * 3))
