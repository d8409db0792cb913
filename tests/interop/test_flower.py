"""Flower, Celery's monitor, beside a worker: its broker page asks the HTTP interface for the worker's queues."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker import running_broker, wait_until
from tests.interop.celery_workers import PATIENCE, worker
from tests.ports import reserve_port
from tests.unit.sources import ROOT

pytestmark = pytest.mark.interop


class Owner:
    """Holds reserved ports for as long as it lives."""


class Flower:
    """A running Flower, with a login of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def page(self, path: str) -> str:
        """Return a page; an empty text if Flower does not answer yet."""
        login = base64.b64encode(b"me:secret").decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{path}", headers={"Authorization": f"Basic {login}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            return ""

    def queue(self, name: str) -> list[str]:
        """Return the cells of a queue's row on the broker page; none if it is not there."""
        for row in re.findall(r"<tr id=.*?</tr>", self.page("broker"), re.DOTALL):
            cells = [re.sub("<.*?>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]
            if cells[0] == name:
                return cells
        return []


@contextmanager
def flower(url: str, queue: str, api: str, log: Path) -> Iterator[Flower]:
    owner = Owner()
    port = reserve_port(owner)
    command = [
        *(sys.executable, "-m", "celery", "-A", "tests.interop.celery_app", "flower"),
        *("--address=127.0.0.1", f"--port={port}", f"--broker_api={api}", "--basic_auth=me:secret"),
    ]
    environment = {**os.environ, "ESCROWMQ_TEST_URL": url, "ESCROWMQ_TEST_QUEUE": queue}
    with (
        log.open("ab") as output,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output) as process,
    ):
        found = Flower(port)
        try:
            wait_until(lambda: found.page("broker") or process.poll() is not None, PATIENCE, "Flower")
            assert process.poll() is None, log.read_text()
            yield found
        finally:
            process.kill()


def test_its_broker_page_shows_the_figures_of_the_workers_queues(
    name: str, app: Callable[..., Any], tmp_path: Path
) -> None:
    owner = Owner()
    http = reserve_port(owner)
    with running_broker(tmp_path, "--http", f"127.0.0.1:{http}") as broker:
        tasks = app(broker, name)
        with worker(broker, name, tmp_path / "worker.log"):
            for _ in range(3):
                tasks.add.apply_async((1, 1), countdown=3600)  # the worker keeps them unacknowledged
            api = f"http://guest:guest@127.0.0.1:{http}/api/"
            with flower(broker.url, name, api, tmp_path / "flower.log") as found:
                figures = [name, "3", "3", "0", "1"]  # messages, unacknowledged, ready, consumers
                wait_until(lambda: found.queue(name)[:5] == figures, PATIENCE, "the queue's figures")
                (row,) = json.loads(found.page("api/queues/length"))["active_queues"]
                assert (row["name"], row["messages"], row["message_stats"]["deliver"]) == (name, 3, 3)
