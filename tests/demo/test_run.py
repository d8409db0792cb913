"""`make run`, with fewer records: the kill, the doubt, the count, and what a user sees."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from escrowmq.demo.command import MARKER
from escrowmq.demo.link import QUEUE
from tests.broker import running_broker, wait_until

DEMO = (sys.executable, "-u", "-m", "escrowmq.demo")
SECONDS = 100


def demo(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *args], capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ, **env}
    )


@pytest.mark.rule("TX-5")
@pytest.mark.rule("TX-8")
@pytest.mark.rule("ORD-5")
@pytest.mark.slow
def test_every_record_arrives_once_although_the_broker_is_killed(tmp_path: Path) -> None:
    done = demo("--once", "--limit", "6000", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6,000 flights as JSON messages, 12 transactions of 500" in done.stdout
    assert re.search(r"^kill -9 .*: its commit (sent and not answered|not sent yet)$", done.stdout, re.MULTILINE)
    assert re.search(r"^restart .* is ready after", done.stdout, re.MULTILINE)
    assert re.search(
        r"were there: it is (whole, and is not sent again|absent as a whole, and is sent again)", done.stdout
    )
    assert re.search(r"^result +published 6,000 = consumed 6,000; none lost, none twice", done.stdout, re.MULTILINE)
    assert re.search(r"^data +\S+ was temporary, and is removed$", done.stdout, re.MULTILINE)
    assert "\n          \n" not in done.stdout, "no empty lines with a label"
    assert not list(tmp_path.iterdir()), "a run that went well leaves nothing behind"


@pytest.mark.slow
def test_it_stays_up_until_it_is_interrupted(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen([*DEMO, "--limit", "1000", "--data-dir", str(tmp_path / "data")], stdout=file)
        try:
            wait_until(
                lambda: b"\nload " in output.read_bytes() or process.poll() is not None, SECONDS, "the last line"
            )
            text = output.read_text()
            assert process.poll() is None, text
            assert f"inspect {tmp_path / 'data'}" in text
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.wait()
    assert "the broker finishes what it promised" in output.read_text()
    assert output.read_text().endswith(f"data      {tmp_path / 'data'} is kept\n")
    with running_broker(tmp_path) as broker:  # the journal was closed in order, and can be used again
        assert "cut off" not in broker.log()


@pytest.mark.slow
def test_interrupted_in_the_middle_it_leaves_nothing_behind(tmp_path: Path) -> None:
    folder, output = tmp_path / "tmp", tmp_path / "output"
    folder.mkdir()
    with output.open("wb") as file:
        process = subprocess.Popen(DEMO, stdout=file, stderr=file, env={**os.environ, "TMPDIR": str(folder)})
    try:
        wait_until(lambda: b"consumed" in output.read_bytes() or process.poll() is not None, SECONDS, "progress")
        started = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 130
    finally:
        process.kill()
        process.wait()
    assert len(started) >= 4, "itself, the broker, the publisher, the consumer"
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
    assert "holds 1 messages already" in done.stderr


def test_the_data_of_another_broker_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "0000000000000000.log").write_bytes(b"")
    done = demo("--once", "--limit", "500", "--data-dir", str(data), TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {data} holds something that is not this demonstration's; give an empty one\n"
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
    assert f"its data as well: {data}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_on_a_terminal_there_are_bars(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*DEMO, "--once", "--limit", "1000"],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "TMPDIR": str(tmp_path)},
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := _read(ours):
            shown += chunk
        assert process.wait(SECONDS) == 0, shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "━".encode() in shown
    assert b"none lost, none twice" in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side is closed
        return b""
