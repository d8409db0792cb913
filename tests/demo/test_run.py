"""`make run` with fewer records: kills, doubts, counts, audit, and output."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from escrowmq.demo.command import MARKER
from escrowmq.demo.link import QUEUE
from tests.broker import running_broker, wait_until

DEMO = (sys.executable, "-u", "-m", "escrowmq.demo")
SECONDS = 100
RUN_SECONDS = 600
"""The time limit of a whole run on a busy machine; most of it is starting Spark."""


def demo(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *args], capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ, **env}
    )


def end_with_children(process: subprocess.Popen[bytes]) -> None:
    """Kill a run that a failed test has left, with its broker and its Spark."""
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.kill()
    process.wait()
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()


@pytest.mark.rule("TX-5")
@pytest.mark.rule("TX-8")
@pytest.mark.rule("ORD-5")
@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
@pytest.mark.rule("PIPE-3")
@pytest.mark.slow
@pytest.mark.timeout(RUN_SECONDS + 60)
def test_every_record_arrives_once_although_broker_and_driver_are_killed(tmp_path: Path) -> None:
    output, data, out, folder = (tmp_path / name for name in ("output", "data", "out", "tmp"))
    folder.mkdir()
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*DEMO, "--limit", "12000", "--data-dir", str(data), "--out", str(out)],
            stdout=file,
            stderr=file,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        try:
            wait_until(lambda: b"\nload " in output.read_bytes() or process.poll() is not None, RUN_SECONDS, "the end")
            assert process.poll() is None, output.read_text()
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
        finally:
            end_with_children(process)
    text = output.read_text()
    assert "12,000 flights as JSON messages, 24 transactions of 500" in text
    for line in (
        r"kill -9 +process .*: its commit (was sent but not answered|was not sent yet)",
        r"restart .* is ready after .*",
        r" +transaction \d+ had arrived: it is (complete and is not sent again|absent as a whole and is sent again)",
        r"kill -9 +Spark's driver and its JVM, process \d+, in epoch \d+, before the decision;",
        r"spark +PySpark .* is up again and continues from its checkpoint, after .*",
        r"spark +epoch \d+ (was not decided|had been decided|was complete).*",
        r"late +\d+ flights arrived 60 minutes late or more, as in the data set; each is on queue flights.late once.*",
        r"audit +CLEAN: .*",
        rf"report +{out}/audit/report\.html",
        r"result +published 12,000 = consumed 12,000; none lost, none duplicated, all in order and with .* content;",
        r" +published 12,000 = processed by Spark 12,000 = counted in the table 12,000",
    ):
        assert re.search(rf"^{line}$", text, re.MULTILINE), f"no line like {line} in:\n{text}"
    assert "\n          \n" not in text, "there are no empty lines with a label"
    assert "the broker syncs everything that it has confirmed" in text
    assert text.endswith(f"data      {data} is kept\n")
    assert "CLEAN" in (out / "audit" / "report.html").read_text()
    with running_broker(tmp_path) as broker:  # the journal was closed cleanly and can be used again
        assert "cut off" not in broker.log()


@pytest.mark.slow
def test_interrupted_in_the_middle_it_leaves_nothing_behind(tmp_path: Path) -> None:
    folder, output = tmp_path / "tmp", tmp_path / "output"
    folder.mkdir()
    with output.open("wb") as file:
        process = subprocess.Popen(DEMO, stdout=file, stderr=file, env={**os.environ, "TMPDIR": str(folder)})
    try:
        wait_until(
            lambda: b"\n          published " in output.read_bytes() or process.poll() is not None, SECONDS, "progress"
        )
        started = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 130
    finally:
        end_with_children(process)
    assert len(started) >= 5, "the program, the broker, the publisher, the consumer, Spark's driver"
    wait_until(lambda: not any(one.is_running() for one in started), what="the end of all processes")
    assert not list(folder.iterdir())
    assert output.read_text().endswith("interrupted\n")


@pytest.mark.slow
def test_a_data_directory_with_old_messages_is_refused(tmp_path: Path) -> None:
    import pika

    with running_broker(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", QUEUE, b"old", pika.BasicProperties(delivery_mode=2))
        connection.close()
        assert broker.terminate() == 0
    (tmp_path / "data" / MARKER).touch()
    done = demo("--once", "--limit", "500", "--data-dir", str(tmp_path / "data"), TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "already contain 1 messages" in done.stderr


def test_the_data_of_another_broker_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "0000000000000000.log").write_bytes(b"")
    done = demo("--once", "--limit", "500", "--data-dir", str(data), TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {data} contains files that are not from this demonstration; choose an empty folder\n"
    assert [file.name for file in data.iterdir()] == ["0000000000000000.log"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = demo("--once", "--limit", "500", "--data-dir", str(tmp_path / "file" / "data"), TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {tmp_path / 'file' / 'data'}: Not a directory\n"


def test_a_broker_that_does_not_start_is_reported(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / MARKER).touch()
    (data / "0000000000000000.log").write_bytes(b"no journal" * 100)
    done = demo("--once", "--limit", "500", "--data-dir", str(data), TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "the broker did not start" in done.stderr
    assert f"its data in {data}" in done.stderr
    assert "Traceback" not in done.stderr
