"""The command line tools of librabbitmq (Debian's amqp-tools), and its transactions, which the tools do not support."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker import BrokerProcess, wait_until
from tests.interop import librabbitmq

PATIENCE = 60
LIBRARY = librabbitmq.load()

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("amqp-publish") is None, reason="amqp-tools is not installed"),
]


def url(broker: BrokerProcess, password: str = "guest", vhost: str = "") -> str:
    """Return the broker's URL without a final slash, which these tools take for the virtual host ""."""
    return f"amqp://guest:{password}@127.0.0.1:{broker.port}{vhost}"


def tool(broker: BrokerProcess, command: str, *args: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [f"amqp-{command}", "--url", url(broker), *args],
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def done(process: subprocess.CompletedProcess[str]) -> str:
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_messages_are_published_got_and_consumed(broker: BrokerProcess, name: str, tmp_path: Path) -> None:
    assert done(tool(broker, "declare-queue", "-q", name, "-d")) == f"{name}\n"
    done(tool(broker, "publish", "-r", name, "-p", "-b", "one", "-H", "mine: 1", "-C", "text/plain"))
    done(tool(broker, "publish", "-r", name, "-p", "-l", given="two\nthree\n"))
    assert done(tool(broker, "get", "-q", name)) == "one"
    out = tmp_path / "got"
    done(tool(broker, "consume", "-q", name, "-c", "2", "-p", "1", "dd", "oflag=append", "conv=notrunc", f"of={out}"))
    assert out.read_text() == "two\nthree\n"
    empty = tool(broker, "get", "-q", name)
    assert (empty.returncode, empty.stdout) == (2, "")
    assert done(tool(broker, "delete-queue", "-q", name)) == "0\n"


def test_a_consumer_that_fails_leaves_the_message(broker: BrokerProcess, name: str) -> None:
    done(tool(broker, "declare-queue", "-q", name))
    done(tool(broker, "publish", "-r", name, "-b", "again"))
    tool(broker, "consume", "-q", name, "-c", "1", "false")
    assert done(tool(broker, "get", "-q", name)) == "again"
    done(tool(broker, "delete-queue", "-q", name))


def test_an_exclusive_queue_receives_messages_from_an_exchange(
    broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    out = tmp_path / "got"
    command = [
        "amqp-consume",
        "--url",
        url(broker),
        "-x",
        "-e",
        "amq.topic",
        "-r",
        f"{name}.#",
        "-c",
        "1",
        "tee",
        str(out),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:

        def arrived() -> bool:
            done(tool(broker, "publish", "-e", "amq.topic", "-r", f"{name}.a.b", "-b", "hello"))
            return consumer.poll() is not None

        wait_until(arrived, PATIENCE, "the consumer's message")
        assert consumer.stderr is not None
        assert consumer.returncode == 0, consumer.stderr.read()
    assert out.read_text() == "hello"


def test_errors_are_reported_with_their_codes(broker: BrokerProcess, name: str) -> None:
    missing = tool(broker, "get", "-q", name)
    assert missing.returncode == 1
    assert f"server channel error 404, message: NOT_FOUND - no queue '{name}' in vhost '/'" in missing.stderr
    wrong = subprocess.run(
        ["amqp-get", "--url", url(broker, "wrong"), "-q", name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert wrong.returncode == 1
    assert "403" in wrong.stderr
    lost = subprocess.run(
        ["amqp-get", "--url", url(broker, vhost="/none"), "-q", name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert lost.returncode == 1
    assert "530" in lost.stderr


def test_messages_of_any_size_arrive_unchanged(broker: BrokerProcess, name: str) -> None:
    done(tool(broker, "declare-queue", "-q", name))
    for body in ("", "x" * 131064, "y" * (10 << 20)):
        done(tool(broker, "publish", "-r", name, given=body))
        assert done(tool(broker, "get", "-q", name)) == body
    done(tool(broker, "delete-queue", "-q", name))


def test_a_waiting_consumer_notices_that_the_broker_stops(
    own_broker: Callable[[str], BrokerProcess], name: str
) -> None:
    broker = own_broker("")
    done(tool(broker, "declare-queue", "-q", name, "-d"))
    done(tool(broker, "publish", "-r", name, "-p", "-b", "kept"))
    command = ["amqp-consume", "--url", url(broker), "-q", name, "cat"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.read(4) == "kept"
        done(tool(broker, "publish", "-r", name, "-p", "-b", "more"))
        assert consumer.stdout.read(4) == "more"
        broker.signal(signal.SIGTERM)
        _, errors = consumer.communicate(timeout=PATIENCE)
    # The tool ignores the reason of the close, and its last ack may arrive too late.
    assert "connection closed unexpectedly" in errors or "a socket error occurred" in errors
    assert broker.wait() == 0
    broker.start()
    assert tool(broker, "get", "-q", name).stdout in (
        "",
        "more",
    )  # the ack of the last message may have arrived too late


@pytest.mark.skipif(LIBRARY is None, reason="librabbitmq is not installed")
class TestLibrary:
    """The library as a C program uses it."""

    @pytest.mark.rule("TX-2")
    @pytest.mark.rule("TX-4")
    def test_transactions_commit_and_roll_back(self, broker: BrokerProcess, name: str) -> None:
        with librabbitmq.Client(LIBRARY, broker.port) as client:
            for channel in (1, 2):
                client.call("amqp_channel_open", channel)
            client.declare(1, name, exclusive=True)
            client.call("amqp_tx_select", 1)
            client.publish(1, name, "rolled back")
            client.call("amqp_tx_rollback", 1)
            for body in ("1", "2"):
                client.publish(1, name, body)
            assert client.get(2, name) is None
            client.call("amqp_tx_commit", 1)
            got = client.get(1, name)
            assert got is not None
            assert got[1] == b"1"
            client.ack(1, got[0])
            client.call("amqp_tx_rollback", 1)
            client.ack(1, got[0])  # the rollback left it unacknowledged
            client.call("amqp_tx_commit", 1)
            assert client.get(2, name, no_ack=True) == (1, b"2")
            assert client.get(2, name) is None

    @pytest.mark.rule("TX-1")
    def test_errors_have_their_codes_and_texts(self, broker: BrokerProcess, name: str) -> None:
        with librabbitmq.Client(LIBRARY, broker.port) as client:
            client.call("amqp_channel_open", 1)
            with pytest.raises(librabbitmq.ReplyError) as caught:
                client.call("amqp_tx_commit", 1)
            assert caught.value.args == (406, "PRECONDITION_FAILED - channel is not transactional")
            client.call("amqp_channel_open", 2)
            client.call("amqp_confirm_select", 2)
            with pytest.raises(librabbitmq.ReplyError) as caught:
                client.call("amqp_tx_select", 2)
            assert caught.value.args == (406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode")
            client.call("amqp_channel_open", 3)
            with pytest.raises(librabbitmq.ReplyError) as caught:
                client.declare(3, name, passive=True)
            assert caught.value.code == 404
        with pytest.raises(librabbitmq.ReplyError) as caught:
            librabbitmq.Client(LIBRARY, broker.port, "wrong")
        assert caught.value.code == 403
        with pytest.raises(librabbitmq.ReplyError) as caught:
            librabbitmq.Client(LIBRARY, broker.port, vhost="none")
        assert caught.value.code == 530
