"""The order of URLs, the delays between rounds, and giving up."""

from __future__ import annotations

import pytest

from escrowmq.amqp10.attempts import Attempts
from escrowmq.amqp10.errors import ConnectionLost, ConnectionRefused, LoginRefused
from escrowmq.amqp10.parameters import Backoff, parameters

TWO = parameters(["amqp://a", "amqp://b"])


def test_urls_are_tried_in_turn_with_a_delay_after_each_round() -> None:
    attempts = Attempts(TWO, 1, Backoff(1.0, 9.0))
    assert attempts.target.host == "b"
    assert attempts.failed(ConnectionLost("no")) == 0.0
    assert attempts.target.host == "a"
    assert 0.5 <= attempts.failed(ConnectionLost("no")) <= 1.0
    assert attempts.target.host == "b"


def test_without_a_back_off_each_url_is_tried_once() -> None:
    attempts = Attempts(TWO, 0, None)
    attempts.failed(ConnectionLost("a is down"))
    with pytest.raises(ConnectionLost, match="2 attempts to connect: a is down; b is down"):
        attempts.failed(ConnectionLost("b is down"))


def test_a_login_that_every_url_refuses_is_not_repeated() -> None:
    attempts = Attempts(TWO, 0, Backoff())
    attempts.failed(LoginRefused("bad password"))
    with pytest.raises(LoginRefused, match="bad password"):
        attempts.failed(LoginRefused("bad password"))


def test_a_connection_that_every_url_keeps_refusing_is_given_up() -> None:
    attempts = Attempts(TWO, 0, Backoff())
    for _ in range(39):
        assert attempts.failed(ConnectionRefused("no vhost")) <= 5.0
    with pytest.raises(ConnectionRefused, match="no vhost"):
        attempts.failed(ConnectionRefused("no vhost"))


def test_a_refused_connection_is_tried_again_because_a_limit_may_pass() -> None:
    attempts = Attempts(TWO[:1], 0, Backoff())
    for number in range(100):
        attempts.failed(
            ConnectionLost("down") if number % 10 == 0 else ConnectionRefused("the user's limit is reached")
        )


def test_without_a_back_off_a_refusal_by_every_url_says_so() -> None:
    attempts = Attempts(TWO, 0, None)
    attempts.failed(ConnectionRefused("no vhost"))
    with pytest.raises(ConnectionRefused, match="no vhost"):
        attempts.failed(ConnectionRefused("no vhost"))
