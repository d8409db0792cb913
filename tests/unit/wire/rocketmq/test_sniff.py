"""The first bytes choose one of RocketMQ's protocols."""

from __future__ import annotations

import subprocess
import sys

import pytest

from escrowmq.wire.rocketmq.grpc.endpoint import GrpcEndpoint
from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
from escrowmq.wire.rocketmq.sniff import ROCKETMQ_FAMILY, hopeless, no_refusal, sniff

IMPORTED = """
import sys
import escrowmq.server.main
print([name for name in sys.modules if name.startswith(("escrowmq.wire.rocketmq.grpc", "google.protobuf"))])
"""


def test_a_broker_without_rocketmq_does_not_import_its_protocols() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_preface_of_http2_leads_to_grpc() -> None:
    assert sniff(b"PRI * HT") is GrpcEndpoint


@pytest.mark.parametrize("header", [b"\x00\x00\x00\x80\x00\x00\x00\x70", b"\x01\x00\x00\x00\x01\x00\x00\x10"])
def test_a_frame_of_classic_remoting_is_known_on_ports_of_rocketmq(header: bytes) -> None:
    assert sniff(header) is RemotingConnection
    assert not hopeless(header[:1])


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x01", b"GET / HT", b"\x16\x03\x01\x02\x00\x01\x00\x01"])
def test_other_headers_are_not_known_on_ports_of_rocketmq(header: bytes) -> None:
    assert sniff(header) is None
    assert hopeless(header[:1])
    assert no_refusal(header) == b""


def test_a_client_of_amqp_is_recognised() -> None:
    assert ROCKETMQ_FAMILY.sniff(b"AMQP\x00\x00\x09\x01") is None
    assert "listen.address, by default port 5672" in ROCKETMQ_FAMILY.guess(b"AMQP\x00\x00\x09\x01")
