"""An outside client that resumes links, `qpid-amqp-1-0-client`, with kill -9 of its two programs and the broker.

java/Resuming.java keeps the client's unsettled deliveries in a journal. `make jms` fetches the client.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.broker import BrokerProcess
from tests.exactly_once_kill.rounds import ORDERS_FOR_EACH_ROUND, Program, compare, kill_at_random

JARS = Path(sys.prefix, "resuming")
SOURCE = Path(__file__).parent / "java" / "Resuming.java"


class Journal(NamedTuple):
    """What one of the two programs has done."""

    numbers: list[int]
    """Those that it has begun to send, or has processed, in this order."""
    unsettled: set[str]
    """The tags of the deliveries that it has not forgotten."""
    resumed: Counter[str]
    """How often a delivery was resumed in each way."""


def missing() -> str:
    """Return what is needed but not installed, or an empty string."""
    if shutil.which("javac") is None:
        return "a Java development kit of version 17 or newer"
    return "" if list(JARS.glob("qpid-amqp-1-0-client-*.jar")) else "make jms"


def run_outsiders_rounds(
    folder: Path, rounds: int, seed: int, report: Callable[[str], object] = len
) -> tuple[Journal, Journal]:
    """Kill one or two of sender, receiver and broker in each round, let all finish, and return the two journals.

    Raises AssertionError if a number was lost, or processed twice.
    """
    classes = folder / "classes"
    subprocess.run(["javac", "-cp", str(JARS / "*"), "-d", str(classes), str(SOURCE)], check=True)
    count = rounds * ORDERS_FOR_EACH_ROUND
    journals = [folder / "sent.journal", folder / "received.journal"]
    with BrokerProcess(folder) as broker:
        java = ["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", f"{classes}:{JARS / '*'}", "Resuming"]
        programs = [
            Program(folder, name, [*java, name, str(broker.port), str(count), str(journal)])
            for name, journal in zip(("send", "receive"), journals, strict=True)
        ]
        kill_at_random(broker, programs, rounds, seed, lambda: processed(journals[1]), report)
    sent, received = read(journals[0]), read(journals[1])
    assert sent.numbers == list(range(count)), "the sender has skipped or repeated a number"
    compare([(number, "") for number in sent.numbers], sorted((number, "") for number in received.numbers))
    assert not sent.unsettled, "the sender has unsettled deliveries"
    assert not received.unsettled, "the receiver has unsettled deliveries"
    return sent, received


def processed(journal: Path) -> int:
    """Return how many numbers the receiver has processed so far."""
    return journal.read_bytes().count(b"begin ") if journal.exists() else 0


def read(journal: Path) -> Journal:
    """Read a journal, which need not exist yet."""
    found = Journal([], set(), Counter())
    text = journal.read_text(encoding="ascii") if journal.exists() else ""
    for line in text.splitlines():
        event, *words = line.split()
        if event == "begin":
            found.numbers.append(int(words[1]))
            found.unsettled.add(words[0])
        elif event == "settled":
            found.unsettled.discard(words[0])
        else:
            found.resumed[words[0]] += 1
    return found
