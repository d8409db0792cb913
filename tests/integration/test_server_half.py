"""Half messages in the journal of a real process: an operator lists them and decides them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from escrowmq.core.broker import Broker
from escrowmq.core.queues.queue import Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.journal.journal import Journal
from escrowmq.journal.storage import FileStorage
from escrowmq.server.start import recover
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of
from escrowmq.wire.rocketmq.properties import render
from tests.broker import BrokerProcess, running_broker


def stored(folder: Path, *idents: str) -> list[str]:
    """Write a journal in which these half messages are pending. Return their transaction ids."""
    folder.mkdir(mode=0o700, parents=True)
    storage = FileStorage(folder)
    journal = Journal.open(storage)
    broker = Broker(journal, random.Random(1))
    recover(journal, broker)
    broker.directory.add_vhost("/")
    write(journal)
    queue = broker.directory.declare_queue(broker.directory.vhost("/"), "q", Declaration(durable=True), Session("test"))
    envelope, content = envelope_of("orders", "k"), MessageContent(render({"KEYS": "order-7"}), b"body").pack()
    found = [
        broker.half.store("/", "orders", ident, envelope, content, queue, group="shop", user="guest").number
        for ident in idents
    ]
    write(journal)
    storage.close()
    return [half.transaction_id for number in found if (half := broker.half.at("/", number)) is not None]


def write(journal: Journal) -> None:
    batch = journal.take_batch(time.time_ns() // 1000)
    assert batch is not None
    batch.write()
    journal.batch_done(batch)


def escrowmq(broker: BrokerProcess, *args: str, stdin: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", *args, "--data-dir", str(broker.data_dir)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def states(broker: BrokerProcess) -> dict[str, Any]:
    return {row["message_id"]: row["state"] for row in json.loads(escrowmq(broker, "half", "list", "--all", "--json"))}


@pytest.mark.rule("HALF-6", "HALF-10")
def test_an_operator_lists_shows_and_decides_half_messages_which_survive_a_kill(tmp_path: Path) -> None:
    first, second, _ = stored(tmp_path / "data", "a", "b", "c")
    with running_broker(tmp_path) as broker:
        assert broker.data_dir == tmp_path / "data"
        assert states(broker) == {"a": "pending", "b": "pending", "c": "pending"}
        table = escrowmq(broker, "half", "list", "--state", "pending", "--topic", "orders")
        assert first in table
        shown = escrowmq(broker, "half", "show", "a")
        assert first in shown
        assert "group 'shop', user 'guest'" in shown
        assert "queue 'q'" in shown
        assert "order-7" in shown
        assert "4 bytes: body" in shown
        assert escrowmq(broker, "half", "show", "a", "--body") == "body"
        assert first not in escrowmq(broker, "half", "list", "--older-than", "1h")
        assert "nothing was changed" in escrowmq(
            broker, "half", "commit", first, "--reason", "a test", stdin="n\n", code=1
        )
        assert escrowmq(broker, "half", "commit", first, "--reason", "a test", "--yes") == f"{first}: committed\n"
        assert "is committed already; nothing was changed" in escrowmq(
            broker, "half", "commit", first, "--reason", "a test"
        )
        assert first not in escrowmq(broker, "half", "list")
        assert escrowmq(broker, "half", "drop", second, "--reason", "a test", "--yes") == f"{second}: rolled back\n"
        assert "which is rolled back" in escrowmq(
            broker, "half", "commit", second, "--reason", "a test", "--yes", code=1
        )
        assert "which is committed; its outcome is final" in escrowmq(
            broker, "half", "resume", first, "--reason", "a test", code=1
        )
        assert "the body is no longer kept" in escrowmq(broker, "half", "show", first, "--body", code=1)
        assert "is not a duration" in escrowmq(broker, "half", "list", "--older-than", "soon", code=2)
        broker.kill()
        broker.start()
        assert states(broker) == {"a": "committed", "b": "rolled_back", "c": "pending"}
        assert "decided" in escrowmq(broker, "half", "show", first)
        queues = json.loads(escrowmq(broker, "queues", "--json"))
        assert [(queue["name"], queue["ready"]) for queue in queues] == [("q", 1)]
