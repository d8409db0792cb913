"""A connection of classic remoting."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.endpoint import EndpointLimits
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.connection import SILENCE_MS, address_of
from escrowmq.wire.rocketmq.remoting.frames import BINARY, Command, encode
from tests.harness.server import Options
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, send_fields, server


@pytest.mark.parametrize("form", [0, BINARY])
def test_a_message_is_sent_and_pulled(form: int) -> None:
    client = Client(server(), form=form)
    sent = client.publish("t", b"body", 3, TAGS="a", UNIQ_KEY="u")
    assert (sent.code, sent.fields["queueId"], sent.fields["queueOffset"]) == (ResultCode.SUCCESS, "3", "0")
    assert sent.fields["transactionId"] == "u"
    pulled = client.pull("t", 3)
    assert (pulled.code, pulled.fields["nextBeginOffset"], pulled.fields["maxOffset"]) == (ResultCode.SUCCESS, "1", "1")
    (message,) = messages(pulled.body)
    assert (message.topic, message.queue, message.offset, message.content.body) == ("t", 3, 0, b"body")
    assert message.content.properties == b"TAGS\x01a\x02UNIQ_KEY\x01u\x02"


@pytest.mark.rule("DUR-1")
def test_a_send_is_answered_when_it_is_on_disk() -> None:
    machine = server()
    client = Client(machine)
    number = client.send(Code.SEND_V2, send_fields("t"), b"body")
    assert client.response(number) is None
    machine.run_disk()
    assert client.response(number) is not None


def test_frames_arrive_octet_by_octet() -> None:
    machine = server()
    client = Client(machine)
    frames = b"".join(encode(Command(Code.CLUSTER, opaque=number)) for number in range(3))
    for octet in frames:
        machine.receive(client.port, bytes((octet,)))
    machine.end_turn()
    assert [command.opaque for command in client.arrived()] == [0, 1, 2]


def test_an_unknown_request_is_answered_as_not_supported() -> None:
    client = Client(server())
    assert client.call(9999).code == ResultCode.NOT_SUPPORTED
    assert client.call(Code.CLUSTER).code == ResultCode.SUCCESS


def test_a_request_sent_one_way_gets_no_response() -> None:
    machine = server()
    client = Client(machine)
    client.send(9999, one_way=True)
    client.send(Code.CLUSTER, one_way=True)
    machine.run_disk()
    assert client.arrived() == []


def test_a_malformed_frame_ends_the_connection() -> None:
    machine = server()
    client = Client(machine)
    machine.receive(client.port, bytes((0, 0, 0, 8, 9, 0, 0, 4)))
    machine.end_turn()
    assert client.port.closed


@given(st.binary(max_size=100))
def test_any_octets_are_answered_or_end_the_connection(data: bytes) -> None:
    machine = server()
    client = Client(machine)
    machine.receive(client.port, data)
    machine.end_turn()


def test_a_client_without_an_access_key_can_be_refused() -> None:
    options = Options(limits=EndpointLimits(rocketmq=RocketmqOptions(anonymous_user="")))
    client = Client(server(options=options))
    assert client.call(Code.CLUSTER).code == ResultCode.NO_PERMISSION


def signed(fields: dict[str, str], body: bytes = b"", secret: bytes = b"secret of key") -> dict[str, str]:
    """Return fields with the access key `key` and a signature."""
    fields = {**fields, "AccessKey": "key"}
    text = "".join(value for _, value in sorted(fields.items())).encode() + body
    signature = base64.b64encode(hmac.new(secret, text, hashlib.sha1).digest()).decode()
    return {**fields, "Signature": signature}


@pytest.mark.rule("SEC-1")
def test_a_client_with_an_access_key_signs_every_request() -> None:
    machine = server(options=Options(users=("guest", "alice")))
    machine.broker.access.add_access_key("alice", "key")
    client = Client(machine)
    assert client.call(Code.SEND_V2, signed(send_fields("t"), b"body"), b"body").code == ResultCode.SUCCESS
    assert client.port.endpoint.describe()["user"] == "alice"
    assert client.call(Code.SEND_V2, signed(send_fields("t"), b"body"), b"other").code == ResultCode.NO_PERMISSION
    assert client.call(Code.CLUSTER, signed({}, secret=b"wrong")).code == ResultCode.NO_PERMISSION
    assert client.call(Code.CLUSTER).code == ResultCode.NO_PERMISSION
    assert client.call(Code.CLUSTER, signed({})).code == ResultCode.SUCCESS


def test_sends_are_refused_as_busy_while_the_broker_has_no_room() -> None:
    client = Client(server())
    client.port.endpoint.block("low on disk")
    assert client.publish("t").code == ResultCode.SYSTEM_BUSY
    client.port.endpoint.block("")
    assert client.publish("t").code == ResultCode.SUCCESS


def test_a_silent_client_is_given_up() -> None:
    machine = server()
    client = Client(machine)
    client.ok(Code.CLUSTER)
    client.port.endpoint.tick(0, SILENCE_MS, 0)
    machine.end_turn()
    assert not client.port.closed
    client.port.endpoint.tick(0, SILENCE_MS + 1, 0)
    machine.end_turn()
    assert client.port.closed


def test_many_requests_take_several_turns() -> None:
    machine = server()
    client = Client(machine)
    machine.receive(client.port, b"".join(encode(Command(Code.CLUSTER, opaque=number)) for number in range(500)))
    machine.end_one_turn()
    first = len(client.arrived())
    assert 0 < first < 500
    machine.end_turn()
    assert first + len(client.arrived()) == 500


@pytest.mark.rule("FAIR-1")
def test_a_client_is_served_in_a_turn_whose_budget_others_have_used_up() -> None:
    machine = server()
    client = Client(machine)
    machine.broker.engine.requests.left = -1000
    machine.receive(client.port, encode(Command(Code.CLUSTER)))
    machine.end_one_turn()
    assert len(client.arrived()) == 1


def test_a_message_survives_a_restart() -> None:
    storage = MemoryStorage(random.Random(1))
    machine = server(storage)
    Client(machine).publish("t", b"body")
    machine.close()
    (message,) = messages(Client(server(storage)).pull("t").body)
    assert message.content.body == b"body"


def test_a_connection_describes_itself() -> None:
    client = Client(server())
    client.heartbeat("g", "me", "p", t="*")
    described = client.port.endpoint.describe()
    assert (described["user"], described["vhost"], described["state"]) == ("guest", "/", "running")
    assert described["client"] == {"client id": "me", "consumer groups": 1}


@pytest.mark.parametrize(
    ("host", "octets"),
    [
        ("10.0.0.1", b"\x0a\x00\x00\x01"),
        ("::1", bytes(15) + b"\x01"),
        ("::ffff:1.2.3.4", b"\x01\x02\x03\x04"),
        ("name", b"\x7f\x00\x00\x01"),
    ],
)
def test_the_address_is_part_of_ids(host: str, octets: bytes) -> None:
    assert address_of(host) == octets
