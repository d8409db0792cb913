"""Logging in, tuning, opening."""

from __future__ import annotations

import pytest

from escrowmq.core.access.grant import Grant
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import HEARTBEAT, PROTOCOL_HEADER, method_frame
from escrowmq.wire.amqp091.handshake import CAPABILITIES, State
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.table import FieldTable, encode_table
from escrowmq.wire.scram.client import ClientExchange
from tests.harness.client import SimClient, connect
from tests.harness.frames import FrameReader
from tests.unit.wire.amqp091.clients import Server, fails_channel, fails_connection, opening, server

TELL_ME: FieldTable = {"capabilities": {"authentication_failure_close": True}}


class Talk:
    """One connection, from its first byte."""

    def __init__(self, made: Server | None = None) -> None:
        self.server = made or server()
        self.port = connect(self.server)
        self.reader = FrameReader()

    def say(self, *parts: bytes | Method) -> list[Method]:
        """Return the bytes that the server answers."""
        data = b"".join(part if isinstance(part, bytes) else method_frame(0, part) for part in parts)
        self.server.receive(self.port, data)
        return self.hear()

    def hear(self) -> list[Method]:
        self.server.end_turn()
        self.server.run_disk()
        data, self.port.sent = bytes(self.port.sent), bytearray()
        return [message.method for message in self.reader.feed(data)]

    @property
    def state(self) -> State:
        return self.port.endpoint.state


def start_ok(
    mechanism: str = "PLAIN", response: bytes = b"\0guest\0guest", client: FieldTable | None = None
) -> spec.ConnectionStartOk:
    properties: FieldTable = {**TELL_ME, **(client or {})}
    return spec.ConnectionStartOk(properties, mechanism, response, "en_US")


def scram(password: str) -> tuple[Talk, ClientExchange]:
    """Return a connection to a server that offers SCRAM only, and the client's side of a login."""
    made = server()
    made.mechanisms = ("SCRAM-SHA-256",)
    talk = Talk(made)
    talk.say(PROTOCOL_HEADER)
    return talk, ClientExchange("SCRAM-SHA-256", "guest", password, "abc")


def code_of(said: list[Method]) -> int:
    assert isinstance(said[-1], spec.ConnectionClose), said
    return said[-1].reply_code


class TestHeader:
    def test_the_server_sends_connection_start(self) -> None:
        (start,) = Talk().say(PROTOCOL_HEADER)
        assert isinstance(start, spec.ConnectionStart)
        assert (start.version_major, start.version_minor) == (0, 9)
        assert start.mechanisms == b"PLAIN"
        assert start.locales == b"en_US"
        assert start.server_properties["capabilities"] == CAPABILITIES
        assert start.server_properties["product"] == "EscrowMQ"

    def test_the_header_may_arrive_byte_by_byte(self) -> None:
        talk = Talk()
        for i in range(7):
            assert talk.say(PROTOCOL_HEADER[i : i + 1]) == []
        assert isinstance(talk.say(PROTOCOL_HEADER[7:])[0], spec.ConnectionStart)

    @pytest.mark.parametrize(
        "header", [b"AMQP\x00\x01\x00\x00", b"AMQP\x01\x01\x00\x0a", b"GET / HTTP/1.1\r\n", b"A\x00"]
    )
    def test_any_other_header_is_answered_with_the_supported_one(self, header: bytes) -> None:
        talk = Talk()
        assert talk.say(header) == []
        assert talk.reader.protocol_header == PROTOCOL_HEADER
        assert talk.port.closed


class TestLogin:
    def test_a_valid_login_succeeds(self) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER)
        assert talk.say(start_ok()) == [spec.ConnectionTune(2047, 131_072, 60)]
        assert talk.say(spec.ConnectionTuneOk(0, 0, 0)) == []
        assert talk.say(spec.ConnectionOpen("/")) == [spec.ConnectionOpenOk()]
        assert talk.state is State.RUNNING

    @pytest.mark.parametrize(
        ("mechanism", "response"),
        [
            ("PLAIN", b"\0guest\0wrong"),
            ("PLAIN", b"\0nobody\0nobody"),
            ("PLAIN", b"guest"),
            ("PLAIN", b""),
            ("AMQPLAIN", b"\x00"),
            ("GSSAPI", b""),
            ("", b""),
        ],
    )
    def test_a_failed_login_closes_the_connection(self, mechanism: str, response: bytes) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER)
        said = talk.say(start_ok(mechanism, response))
        assert code_of(said) == codes.ACCESS_REFUSED
        assert "wrong" not in str(said)
        assert talk.port.closed

    @pytest.mark.parametrize("at_once", [True, False])
    def test_scram_goes_by_secure_and_secure_ok(self, at_once: bool) -> None:
        talk, client = scram("guest")
        first = client.first()
        if at_once:
            (said,) = talk.say(start_ok("SCRAM-SHA-256", first))
        else:
            assert talk.say(start_ok("SCRAM-SHA-256", b"")) == [spec.ConnectionSecure(b"")]
            (said,) = talk.say(spec.ConnectionSecureOk(first))
        assert isinstance(said, spec.ConnectionSecure)
        (said,) = talk.say(spec.ConnectionSecureOk(client.final(said.challenge)))
        assert isinstance(said, spec.ConnectionSecure)
        client.verify(said.challenge)
        assert talk.say(spec.ConnectionSecureOk(b"")) == [spec.ConnectionTune(2047, 131_072, 60)]
        assert talk.say(spec.ConnectionTuneOk(0, 0, 0), spec.ConnectionOpen("/")) == [spec.ConnectionOpenOk()]

    def test_a_wrong_proof_or_a_malformed_response_closes_the_connection(self) -> None:
        for malformed in (False, True):
            talk, client = scram("wrong")
            (said,) = talk.say(start_ok("SCRAM-SHA-256", client.first()))
            assert isinstance(said, spec.ConnectionSecure)
            final = client.final(said.challenge)
            assert code_of(talk.say(spec.ConnectionSecureOk(b"x" if malformed else final))) == codes.ACCESS_REFUSED
            assert talk.port.closed

    def test_secure_ok_needs_a_challenge(self) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER)
        assert code_of(talk.say(spec.ConnectionSecureOk(b"n,,n=guest,r=abc"))) == codes.COMMAND_INVALID

    def test_the_server_learns_of_a_client_when_its_connection_is_open(self) -> None:
        made = server()
        talk = Talk(made)
        talk.say(PROTOCOL_HEADER, start_ok(), method_frame(0, spec.ConnectionTuneOk(0, 0, 0)))
        assert made.admissions == []
        talk.say(spec.ConnectionOpen("/"))
        assert made.admissions == [("guest", "/")]

    def test_a_client_without_close_capability_is_disconnected(self) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER)
        assert talk.say(spec.ConnectionStartOk({}, "PLAIN", b"\0guest\0wrong", "en_US")) == []
        assert talk.port.closed

    def test_a_connection_has_the_name_given_by_the_client(self) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER)
        talk.say(start_ok(client={"connection_name": "billing"}))
        assert talk.port.endpoint.label.endswith(" (billing)")

    @pytest.mark.parametrize(
        "client", [{"capabilities": 7}, {"capabilities": {"consumer_cancel_notify": 1}}, {"x": []}]
    )
    def test_unexpected_client_properties_are_tolerated(self, client: FieldTable) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER)
        assert isinstance(talk.say(start_ok(client=client))[0], spec.ConnectionTune)
        assert not talk.port.endpoint.cancel_notify

    @pytest.mark.parametrize("cut", [0, 1, 10, 22])
    def test_bytes_received_during_the_login_check_wait(self, cut: int) -> None:
        made = server()
        made.slow = True
        talk = Talk(made)
        rest = method_frame(0, spec.ConnectionTuneOk(0, 0, 0)) + method_frame(0, spec.ConnectionOpen("/"))
        talk.say(PROTOCOL_HEADER)
        assert talk.say(start_ok(), rest[:cut]) == []
        assert talk.say(rest[cut:]) == []
        assert talk.state is State.AUTHENTICATING
        made.login_done()
        assert talk.hear() == [spec.ConnectionTune(2047, 131_072, 60), spec.ConnectionOpenOk()]

    def test_bytes_received_during_the_login_check_are_limited(self) -> None:
        made = server()
        made.slow = True
        talk = Talk(made)
        talk.say(PROTOCOL_HEADER, start_ok())
        talk.say(HEARTBEAT * 400)
        assert talk.state is State.AUTHENTICATING
        talk.say(HEARTBEAT * 400)
        assert talk.port.closed
        made.login_done()
        assert talk.hear() == []

    def test_a_client_may_leave_during_the_login_check(self) -> None:
        made = server()
        made.slow = True
        talk = Talk(made)
        talk.say(PROTOCOL_HEADER, start_ok())
        made.lose(talk.port)
        made.login_done()
        assert talk.state is State.CLOSED

    def test_the_whole_handshake_may_arrive_at_once(self) -> None:
        talk = Talk()
        said = talk.say(opening())
        assert [method.NAME for method in said] == ["connection.start", "connection.tune", "connection.open-ok"]


class TestTuning:
    @pytest.mark.parametrize(
        ("tune", "frame_max", "channel_max", "heartbeat"),
        [
            (spec.ConnectionTuneOk(0, 0, 0), 131_072, 2047, 0),
            (spec.ConnectionTuneOk(5, 4096, 7), 4096, 5, 7),
            (spec.ConnectionTuneOk(2047, 131_072, 600), 131_072, 2047, 600),
        ],
    )
    def test_the_lower_limit_is_negotiated(
        self, tune: Method, frame_max: int, channel_max: int, heartbeat: int
    ) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER, start_ok(), tune)
        endpoint = talk.port.endpoint
        assert (endpoint.frame_max, endpoint.channel_max, endpoint.heartbeat) == (frame_max, channel_max, heartbeat)

    @pytest.mark.parametrize(
        "tune",
        [
            spec.ConnectionTuneOk(2048, 0, 0),
            spec.ConnectionTuneOk(0, 131_073, 0),
            spec.ConnectionTuneOk(0, 4095, 0),
            spec.ConnectionTuneOk(0, 2**32 - 1, 0),
        ],
    )
    def test_higher_limits_than_offered_are_refused(self, tune: Method) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER, start_ok())
        assert code_of(talk.say(tune)) == codes.NOT_ALLOWED


class TestOpening:
    def test_a_missing_or_forbidden_virtual_host_is_refused(self) -> None:
        made = server()
        made.broker.directory.add_vhost("private")
        for name, words in (("nowhere", "vhost nowhere not found"), ("private", "access to vhost 'private' refused")):
            talk = Talk(made)
            talk.say(PROTOCOL_HEADER, start_ok(), spec.ConnectionTuneOk(0, 0, 0))
            said = talk.say(spec.ConnectionOpen(name))
            assert code_of(said) == codes.NOT_ALLOWED
            assert words in str(said[-1])

    @pytest.mark.parametrize(
        ("before", "method"),
        [
            ([], spec.ConnectionTuneOk(0, 0, 0)),
            ([], spec.ConnectionOpen("/")),
            ([start_ok()], start_ok()),
            ([start_ok()], spec.ConnectionOpen("/")),
            ([start_ok(), spec.ConnectionTuneOk(0, 0, 0)], spec.ConnectionTuneOk(0, 0, 0)),
            ([start_ok(), spec.ConnectionTuneOk(0, 0, 0), spec.ConnectionOpen("/")], spec.ConnectionOpen("/")),
            ([], spec.ConnectionUpdateSecret(b"s", "r")),
            ([], spec.ConnectionSecureOk(b"s")),
            ([], spec.ConnectionCloseOk()),
        ],
    )
    def test_methods_out_of_order_are_refused(self, before: list[Method], method: Method) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER, *before)
        assert code_of(talk.say(method)) == codes.COMMAND_INVALID

    @pytest.mark.parametrize("steps", [0, 1, 2, 3])
    def test_a_client_may_close_during_the_handshake(self, steps: int) -> None:
        talk = Talk()
        path = [start_ok(), spec.ConnectionTuneOk(0, 0, 0), spec.ConnectionOpen("/")]
        talk.say(PROTOCOL_HEADER, *path[:steps])
        assert talk.say(spec.ConnectionClose(200, "bye", 0, 0)) == [spec.ConnectionCloseOk()]

    def test_channels_before_the_connection_is_open_are_refused(self) -> None:
        talk = Talk()
        talk.say(PROTOCOL_HEADER, start_ok(), spec.ConnectionTuneOk(0, 0, 0))
        assert code_of(talk.say(method_frame(1, spec.ChannelOpen()))) == codes.CHANNEL_ERROR

    def test_frames_before_tuning_are_limited_to_16384_octets(self) -> None:
        """Tokens are longer than the 4,096 octets of the specification."""
        talk = Talk()
        talk.say(PROTOCOL_HEADER)
        long = start_ok(client={"x": "y" * 12_000})
        assert [type(each) for each in talk.say(long)] == [spec.ConnectionTune]
        talk = Talk()
        talk.say(PROTOCOL_HEADER)
        big: FieldTable = {"x": "y" * 17_000}
        assert len(encode_table(big)) > 16_384
        assert code_of(talk.say(spec.ConnectionStartOk(big, "PLAIN", b"", "en_US"))) == codes.FRAME_ERROR


@pytest.mark.rule("FAIR-3")
def test_a_user_has_no_more_channels_than_its_limit_on_all_connections_together() -> None:
    made = server()
    first, second = SimClient(made), SimClient(made)
    made.broker.access.set_user_limits("guest", None, 2)
    first.open_channel(1)
    first.open_channel(2)
    first.send(1, spec.BasicAck(7))
    fails_channel(first, 1, codes.PRECONDITION_FAILED)
    second.open_channel(1)
    second.send(2, spec.ChannelOpen())
    fails_connection(second, codes.NOT_ALLOWED, "number of channels opened for user 'guest'", "(2)")
    first.open_channel(1)
    first.lose()
    assert not made.broker.engine.channels


def with_token(*scopes: str) -> tuple[Server, SimClient]:
    """Return a client that has logged in by a token, and the server, which also knows the token `new`."""
    made = server()
    made.grants = {"guest": Grant("guest", scopes), "new": Grant("guest", ["read:*/*"]), "eve": Grant("eve", [])}
    client = SimClient(made)
    client.open_channel(1)
    return made, client


def test_update_secret_renews_a_token_when_it_is_checked() -> None:
    made, client = with_token("configure:*/*")
    made.slow = True
    client.send(0, spec.ConnectionUpdateSecret(b"new", "because"))
    client.collect()
    assert not client.inbox
    made.login_done()
    client.expect(0, spec.ConnectionUpdateSecretOk)
    assert made.secrets == []
    client.send(1, spec.QueueDeclare("q"))
    fails_channel(client, 1, codes.ACCESS_REFUSED)


@pytest.mark.parametrize("token", [b"wrong", b"eve", b"\xff"])
def test_a_new_token_that_is_refused_closes_the_connection(token: bytes) -> None:
    _, client = with_token("configure:*/*")
    client.send(0, spec.ConnectionUpdateSecret(token, "because"))
    fails_connection(client, codes.NOT_ALLOWED, "the new token")


def test_a_new_token_for_a_connection_that_is_closing_is_of_no_interest() -> None:
    made, client = with_token("configure:*/*")
    made.slow = True
    client.send(0, spec.ConnectionUpdateSecret(b"wrong", "because"))
    client.send(0, spec.ConnectionClose(200, ""))
    made.login_done()
    client.expect(0, spec.ConnectionCloseOk)
    client.collect()
    assert not client.inbox
