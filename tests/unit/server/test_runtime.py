"""Blocked publishers, limits, and the shutdown."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from escrowmq.config.limits import LimitsSection
from escrowmq.core.access.grant import Grant
from escrowmq.core.conditions import BrokerError
from escrowmq.core.records.kinds import RECORD_BYTES
from escrowmq.journal import format as fmt
from escrowmq.server.auth import Authenticator
from escrowmq.server.connection import Pause
from escrowmq.server.faults import AT_ONCE
from escrowmq.server.runtime import default_limits, endpoint_limits, terminus_limits
from escrowmq.wire.endpoint import Verdict
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.sasl import Credentials
from tests.unit.server.benches import on_loop, until
from tests.unit.server.scenes import Scene


@pytest.fixture(autouse=True)
def _fakes(fake_protocol: None) -> None:
    """Endpoints are fakes."""


def test_limits_are_handed_on_in_the_units_of_endpoints() -> None:
    limits = endpoint_limits(
        LimitsSection(
            channels_per_connection=7,
            frame_max=8192,
            message_size=9,
            header_size=2048,
            arguments_size=1024,
            heartbeat_seconds=2.6,
            transaction_operations=3,
            transaction_bytes=4,
            transaction_age_seconds=1.5,
        )
    )
    assert (limits.channels, limits.frame_max, limits.message_size, limits.header_size) == (7, 8192, 9, 2048)
    assert limits.arguments == 1024
    assert limits.heartbeat == 3
    transaction = limits.transaction
    assert (transaction.operations, transaction.bytes, transaction.age) == (3, 4, 1500)
    assert (limits.rabbitmq_version, endpoint_limits(LimitsSection(), "4.2.0").rabbitmq_version) == ("", "4.2.0")
    assert endpoint_limits(LimitsSection(), "", RocketmqOptions(cluster="c")).rocketmq.cluster == "c"
    boundless = endpoint_limits(LimitsSection(transaction_bytes=0)).transaction
    assert boundless.bytes < fmt.MAX_RECORD == RECORD_BYTES, "a transaction is one record, whatever is configured"


@on_loop
async def test_all_endpoints_share_one_object_of_a_class() -> None:
    scene = Scene()
    assert scene.runtime.common(list) is scene.runtime.common(list)
    assert scene.runtime.common(dict) == {}
    await scene.bench.close()


def test_limits_of_link_termini_are_handed_on() -> None:
    limits = terminus_limits(LimitsSection(termini_per_user=3, unsettled_per_link=4, link_timeout_seconds=5))
    assert (limits.termini, limits.unsettled, limits.timeout_ms) == (3, 4, 5000)


def test_a_login_that_an_endpoint_has_refused_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        scene.runtime.login_judged(endpoint, "a client", Verdict(None, "the signature is wrong"))
        assert caplog.messages == [f"login of a client from {connection.peer} refused: the signature is wrong"]
        await scene.bench.close()

    on_loop(test)


def test_errors_of_clients_are_logged_with_user_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene()
        _, _, endpoint = scene.connect()
        scene.runtime.admitted(endpoint, "alice", "/")
        scene.runtime.failed(endpoint, 506, "channel 1: transaction is too large")
        await scene.bench.close()

    on_loop(test)
    assert caplog.messages == ["fake, user 'alice': 506 channel 1: transaction is too large"]


def test_a_user_is_known_from_the_verdict_on_and_a_virtual_host_from_the_admission_on() -> None:
    async def test() -> None:
        scene = Scene()
        verdicts: list[Verdict] = []
        answers: list[Callable[[Verdict], None]] = []
        authenticator = SimpleNamespace(authenticate=lambda *call: answers.append(call[2]))
        scene.runtime._authenticator = cast("Authenticator", authenticator)
        connection, _, endpoint = scene.connect()
        scene.runtime.authenticate(endpoint, Credentials("PLAIN", "alice", "secret"), verdicts.append)
        assert (connection.user, verdicts) == ("", [])
        answers[0](Verdict("alice"))
        assert (connection.user, verdicts) == ("alice", [Verdict("alice")])
        assert (connection.vhost, connection.admitted) == ("", False)
        scene.runtime.admitted(endpoint, "alice", "/")
        assert (connection.vhost, connection.admitted) == ("/", True)
        await scene.bench.close()

    on_loop(test)


def test_a_login_over_the_limit_is_refused() -> None:
    async def test() -> None:
        scene = Scene(connections=1)
        first, second = scene.connect(), scene.connect()
        scene.runtime.check_room(first[2], "alice", "/")
        scene.runtime.admitted(first[2], "alice", "/")
        with pytest.raises(BrokerError, match="node connection limit"):
            scene.runtime.check_room(second[2], "alice", "/")
        first[0].connection_lost(None)
        scene.runtime.check_room(second[2], "alice", "/")
        assert scene.runtime.accepted == 2
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-3", "SEC-4")
def test_the_oldest_connection_that_has_not_logged_in_is_closed_for_a_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        scene = Scene(unauthenticated_connections=2)
        user, first, second = scene.connect(), None, None
        scene.runtime.admitted(user[2], "alice", "/")
        first, second = scene.connect(), scene.connect(greeting=b"")
        third = scene.connect()
        assert [each[1].aborted() for each in (user, first, second, third)] == [False, True, False, False]
        for _ in range(100):
            scene.connect(greeting=b"")
        await scene.bench.close()

    on_loop(test)
    lines = [message for message in caplog.messages if "limits.unauthenticated_connections" in message]
    assert len(lines) == AT_ONCE, "a flood does not fill the log"
    assert lines[0] == (
        "connection from 127.0.0.1:5 closed: limit of 2 connections that have not logged in "
        "(limits.unauthenticated_connections) is reached"
    )


def test_every_client_is_asked_to_leave_also_one_that_is_not_read() -> None:
    async def test() -> None:
        scene = Scene()
        publisher, silent = scene.connect(), scene.connect(greeting=b"")
        scene.runtime.publishing(publisher[2])
        publisher[0].pause(Pause.ALARM, on=True)
        scene.runtime.shut("closing time")
        await until(lambda: silent[1].closed)
        assert ("shut", "closing time") in publisher[2].told
        assert publisher[1].is_reading(), "its answer must be read"
        assert not scene.runtime.all_closed.is_set()
        scene.runtime.stop()
        await until(publisher[1].aborted)
        for connection, _, _ in (publisher, silent):
            connection.connection_lost(None)
        assert scene.runtime.all_closed.is_set()
        assert scene.connect(greeting=b"")[1].aborted(), "no client is accepted any more"
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-3")
def test_the_memory_that_clients_may_hold_is_a_share_of_the_watermark() -> None:
    async def test() -> None:
        scene = Scene()
        holdings, limit = scene.runtime.broker.holdings, scene.runtime.alarms.memory_limit
        assert (holdings.user_limit, holdings.vhost_limit) == (limit // 2, limit * 3 // 4)
        await scene.bench.close()

    on_loop(test)


@pytest.mark.rule("FAIR-3")
def test_one_user_or_virtual_host_cannot_take_all_connections_by_default() -> None:
    limits = default_limits(LimitsSection())
    assert (limits.connections_of_user, limits.connections_of_vhost) == (8000, 9000)
    small = default_limits(LimitsSection(connections=1))
    assert (small.connections_of_user, small.connections_of_vhost) == (1, 1)
    chosen = default_limits(LimitsSection(connections_per_user=3, connections_per_vhost=0))
    assert (chosen.connections_of_user, chosen.connections_of_vhost) == (3, None)


@pytest.mark.rule("FAIR-3")
def test_channels_of_users_and_queues_of_virtual_hosts_have_limits_by_default() -> None:
    limits = default_limits(LimitsSection())
    assert (limits.channels_of_user, limits.queues_of_vhost) == (100_000, 20_000)
    boundless = default_limits(LimitsSection(channels_per_user=0, queues_per_vhost=0))
    assert (boundless.channels_of_user, boundless.queues_of_vhost) == (None, None)


def test_a_new_token_sets_the_time_at_which_the_connection_ends() -> None:
    async def test() -> None:
        scene = Scene()
        verdicts: list[Verdict] = []
        answers: list[Callable[[Verdict], None]] = []
        authenticator = SimpleNamespace(authenticate=lambda *call: answers.append(call[2]))
        scene.runtime._authenticator = cast("Authenticator", authenticator)
        connection, _, endpoint = scene.connect()
        scene.runtime.authenticate(endpoint, Credentials("PLAIN", "", "a token"), verdicts.append)
        answers.pop()(Verdict("alice", grant=Grant("alice", [], 5000)))
        assert connection.expires_ms == 5000
        for verdict, expires in (
            (Verdict(None, "wrong"), 5000),
            (Verdict("eve", grant=Grant("eve", [], 6000)), 5000),
            (Verdict("alice", grant=Grant("alice", [], 7000)), 7000),
        ):
            scene.runtime.renew(endpoint, "new", verdicts.append)
            answers.pop()(verdict)
            assert (verdicts[-1], connection.expires_ms) == (verdict, expires)
        await scene.bench.close()

    on_loop(test)
