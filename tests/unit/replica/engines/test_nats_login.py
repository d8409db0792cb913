"""Whose certificate a server of NATS must have; `tests/engines/test_logins.py` has logins on servers."""

from __future__ import annotations

import pytest

from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_login import certified_name


@pytest.mark.parametrize(
    ("hosts", "host", "name"),
    [
        ("a.example,b.example", "b.example:4222", "b.example"),
        ("a.example", "c.example:4222", "c.example"),
        ("10.0.0.1,a.example", "10.0.0.1:4222", "10.0.0.1"),
        ("10.0.0.1,a.example", "10.0.0.2:4222", "a.example"),
        ("a.example", "[fd00::2]:4222", "a.example"),
        ("[fd00::1]", "[fd00::1]:4222", "fd00::1"),
        ("10.0.0.1", "10.0.0.2:4222", "10.0.0.2"),
    ],
)
def test_a_server_at_an_address_that_another_one_told_may_have_the_certificate_of_a_name(
    hosts: str, host: str, name: str
) -> None:
    assert certified_name(EngineAddress.parse(f"nats+tls://{hosts}/t"), host) == name
