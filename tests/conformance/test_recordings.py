"""Real clients of AMQP 1.0, as they were recorded, get the answers that they got; each tells the same story."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import transcript
from tests.conformance.recording import FOLDER, play, records

RECORDINGS = sorted(FOLDER.glob("*.txt"))
STORY = ["QUEUE_DECLARED", "PUBLISH", "PUBLISH", "SETTLE", "SETTLE"]
DURABLE = ["azure", "proton", "rhea"]  # the messages of go-amqp's scenario are not durable, that of Qpid JMS is longer


def changes(names: list[str]) -> list[str]:
    """Return the records that change what queues contain. Deliveries and their counts depend on a client's credit."""
    return [name for name in names if name not in {"DELIVERED", "MARKED"}]


@pytest.mark.parametrize("path", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_a_client_gets_the_recorded_answers(path: Path) -> None:
    lines = path.read_text(encoding="ascii").splitlines()
    assert play(lines) == lines


@pytest.mark.parametrize("client", DURABLE)
def test_clients_of_amqp_1_0_leave_the_same_records(client: str) -> None:
    _, *names = (FOLDER / f"{client}.txt").read_text(encoding="ascii").splitlines()[-1].split()
    assert changes(names) == STORY


def test_amqp_0_9_1_leaves_the_same_records() -> None:
    path = transcript.FOLDER / "outcomes.txt"
    player = transcript.Player("")
    first = player.server.journal.end_lsn
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            player.line(line)
    player.server.close()
    assert changes(records(player.storage, first)) == STORY
