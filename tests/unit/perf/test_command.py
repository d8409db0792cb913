"""The command line: exit codes, one line for each error, and whole runs against a server that only counts."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.nullsink import serve as serve_null
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.command import perf
from escrowmq.perf.loop import Sample
from escrowmq.perf.report import LiveDisplay
from escrowmq.perf.workload import SCENARIOS
from tests.unit.perf.conftest import OPEN_OK, START, TUNE, Serve, close


def invoke(*options: str) -> Result:
    return CliRunner().invoke(perf, ["--quiet", *options])


@pytest.fixture
def null_sink() -> Iterator[str]:
    """A server that reports 5000 messages, and counts further publishes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve_null, args=(listener, 5000), daemon=True).start()
        yield f"amqp://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--url", "amqp://nowhere.invalid"], "cannot connect to the broker at nowhere.invalid:5672"),
    ],
)
def test_an_error_is_one_line(options: list[str], complaint: str) -> None:
    result = invoke(*options)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert complaint in result.output
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--scenario", "none"],
        ["--auto-ack", "--ack-every", "3"],
        ["--size", "x"],
        ["--size", "67108865"],
        ["--prefetch", "70000"],
        ["--url", "http://localhost"],
        ["--producers", "0", "--consumers", "0"],
        ["--producers", "0", "--queue", "q", "--count", "5"],
        ["--confirms", "--tx-size", "5"],
        ["--count", "0"],
        ["--argument", "x-max-length"],
    ],
)
def test_wrong_usage_is_exit_code_two(options: list[str]) -> None:
    assert invoke(*options).exit_code == 2


def test_publishing_is_counted_and_verified(null_sink: str) -> None:
    result = invoke("--url", null_sink, "--consumers", "0", "--count", "12345", "--json", "--queue", "null")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert (document["published"], document["expected"]) == (12345, 17345)
    assert document["broker"] == {"product": "null sink", "version": ""}
    assert document["series"][-1][1] == 12345
    assert document["rates"]["publish"] > 0


def test_consuming_is_counted_and_ends(null_sink: str) -> None:
    result = invoke("--url", null_sink, "--producers", "0", "--queue", "null", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["consumed"] == 5000


def test_the_readable_summary_contains_the_counts(null_sink: str) -> None:
    result = invoke("--url", null_sink, "--producers", "0", "--queue", "null")
    assert result.exit_code == 0, result.output
    assert "5,000" in result.output
    assert "this tool used" in result.output
    assert "the best case" in result.output


def test_ctrl_c_shows_the_results_so_far(null_sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def show(_display: LiveDisplay, sample: Sample, *_: object) -> None:
        if sample.published:
            raise KeyboardInterrupt

    monkeypatch.setattr(LiveDisplay, "show", show)
    result = invoke(
        "--url",
        null_sink,
        "--consumers",
        "0",
        "--queue",
        "null",
        "--rate",
        "200",
        "--duration",
        "60",
        "--interval",
        "0.05",
    )
    assert result.exit_code == 130
    assert "published" in result.stdout
    assert result.stderr == "interrupted: these are the results so far; nothing was verified\n"


class Script:
    """A broker that accepts all declarations, and then reacts in one way to a publisher."""

    def __init__(self, after_publish: bytes) -> None:
        self._after_publish = after_publish

    def __call__(self, connection: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(connection.dup(),), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with (
            suppress(ConnectionError),
            connection,
            connection.makefile("rb") as stream,
        ):  # the tool may disconnect at any time
            stream.read(8)
            connection.sendall(START)
            while head := stream.read(7):
                kind, channel, size = frames.FRAME_HEAD.unpack(head)
                payload = stream.read(size + 1)
                answer = self._answer(kind, channel, payload)
                if answer:
                    connection.sendall(answer)

    def _answer(self, kind: int, channel: int, payload: bytes) -> bytes:
        if kind != frames.METHOD:
            return b""
        method = int.from_bytes(payload[:4], "big")
        if method == frames.CONNECTION_START_OK:
            return TUNE
        if method == frames.CONNECTION_OPEN:
            return OPEN_OK
        if method == frames.QUEUE_DECLARE:
            return frames.method(channel, frames.QUEUE_DECLARE_OK, b"\x01q" + bytes(8))
        if method == frames.BASIC_PUBLISH:
            answer, self._after_publish = self._after_publish, b""
            return answer
        if method in {frames.CHANNEL_OPEN, frames.CONFIRM_SELECT, frames.BASIC_QOS, frames.QUEUE_DELETE}:
            return frames.method(channel, method + 1, bytes(4))
        if method == frames.CONNECTION_CLOSE:
            return frames.method(0, frames.CONNECTION_CLOSE_OK)
        return b""


NACK = frames.ACK_FRAME.pack(frames.METHOD, 1, 13, frames.BASIC_NACK, 10, 1, frames.FRAME_END)
BLOCKED = frames.method(0, frames.CONNECTION_BLOCKED, frames.shortstr("low on memory"))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"", "no progress for 4 s: published 10, confirmed 0"),
        (BLOCKED, "the broker blocks publishers: low on memory"),
        (frames.basic_ack(1, 5, multiple=True), "no progress for 4 s: published 10, confirmed 5"),
        (frames.basic_ack(1, 11, multiple=False), "the broker confirmed publish 11, but only 10 were sent"),
        (frames.basic_ack(2, 1, multiple=False), "channel 2, which is not open"),
        (close(frames.CHANNEL_CLOSE, 1, 404, "NOT_FOUND"), "the broker closed the channel: 404 NOT_FOUND"),
        (close(frames.CONNECTION_CLOSE, 0, 320, "CONNECTION_FORCED"), "the broker closed the connection: 320"),
        (NACK + frames.method(1, frames.BASIC_RETURN, bytes(5)), "the broker returned 1 messages"),
    ],
)
def test_a_run_ends_for_any_behaviour_of_the_broker(serve: Serve, answer: bytes, complaint: str) -> None:
    url = serve(Script(answer))
    result = invoke("--url", url, "--consumers", "0", "--confirms", "--count", "10", "--stall", "4")
    assert result.exit_code == 1
    assert complaint in result.output
    assert len(result.output.splitlines()) == 1


def test_a_run_reports_refused_messages(serve: Serve) -> None:
    url = serve(Script(NACK))
    result = invoke("--url", url, "--consumers", "0", "--confirms", "--count", "10", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert (document["rejected"], document["expected"]) == (10, 0)


def test_the_deadline_ends_a_run_that_makes_progress(serve: Serve) -> None:
    url = serve(Script(b""))
    result = invoke("--url", url, "--consumers", "0", "--rate", "100", "--count", "1000", "--deadline", "0.3")
    assert result.exit_code == 1
    assert "not done after 0.3 s" in result.output


def test_every_option_and_scenario_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "perf.md").read_text(encoding="utf-8")
    options = [name for option in perf.params for name in (*option.opts, *option.secondary_opts)]
    missing = [name for name in (*options, *SCENARIOS) if f"`{name}`" not in page]
    assert not missing
