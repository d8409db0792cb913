"""URLs of replicated logs."""

from __future__ import annotations

import pytest

from escrowmq.replica.engines.address import EngineAddress


def test_a_url_of_kafka_names_hosts_and_topic() -> None:
    address = EngineAddress.parse("kafka://one:9093,two,[::1]:9094/escrow.journal")
    assert address.hosts == ("one:9093", "two:9092", "[::1]:9094")
    assert (address.scheme, address.name, address.replicas, address.quorum) == ("kafka", "escrow.journal", 3, 2)
    assert str(address) == "kafka://one:9093,two:9092,[::1]:9094/escrow.journal"


def test_a_url_of_nats_names_hosts_and_stream() -> None:
    address = EngineAddress.parse("nats://one,two:4223/journal?replicas=1")
    assert address.hosts == ("one:4222", "two:4223")
    assert (address.name, address.subject, address.replicas, address.quorum) == ("journal", "escrowmq.journal", 1, 1)


def test_user_and_password_are_unescaped_and_not_shown() -> None:
    address = EngineAddress.parse("kafka://me:s%40cret@one/t")
    assert (address.user, address.password) == ("me", "s@cret")
    assert "s@cret" not in f"{address} {address!r}"


def test_parameters_of_the_kafka_client_are_kept() -> None:
    address = EngineAddress.parse("kafka://one/t?security.protocol=SSL&ssl.ca.location=/ca.pem&flush=1")
    assert address.options == {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem", "flush": "1"}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("kafka://one", "expected kafka://HOST"),
        ("kafka:///t", "expected kafka://HOST"),
        ("one:9092/t", "expected kafka://HOST"),
        ("kafka://one/t/u", "expected kafka://HOST"),
        ("redis://one/t", "no engine is called 'redis'"),
        ("kafka://one/a:b", "'a:b' is no name"),
        ("kafka://one/..", "'..' is no name"),
        ("nats://one/a.b", "'a.b' is no name"),
        ("kafka://one:99999/t", "'one:99999' is not a host with a port"),
        ("kafka://one,,two/t", "'' is not a host with a port"),
        ("kafka://one/t?acks=1", "there is no parameter 'acks'"),
        ("nats://one/t?flush=1", "there is no parameter 'flush'"),
        ("nats://one/t?replicas=2", "replicas must be 1, 3 or 5, not '2'"),
        ("kafka://one/t?flush=maybe", "flush must be a number of entries from 1 on, not 'maybe'"),
        ("kafka://one/t?flush=", "flush must be a number of entries from 1 on, not ''"),
    ],
)
def test_a_bad_url_is_refused_in_one_line(url: str, why: str) -> None:
    with pytest.raises(ValueError, match="bad URL") as raised:
        EngineAddress.parse(url)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_refusal_of_a_url_hides_its_password() -> None:
    with pytest.raises(ValueError, match="bad URL") as raised:
        EngineAddress.parse("kafka://me:secret@one")
    assert "secret" not in str(raised.value)
