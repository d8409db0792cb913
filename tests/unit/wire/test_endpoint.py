"""The interface between endpoints and the server."""

from __future__ import annotations

import random
from dataclasses import FrozenInstanceError
from typing import get_type_hints

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.endpoint import Endpoint, EndpointLimits, Peer, Verdict
from escrowmq.wire.sniff import PROTOCOLS
from tests.harness.server import SimServer


def test_a_peer_is_shown_by_its_address() -> None:
    assert str(Peer("10.0.0.1", 5000, tls=True, certificate_user="u")) == "10.0.0.1:5000"
    assert str(Peer("::1", 5000, loopback=True)) == "::1:5000"


def test_the_default_limits_are_rabbitmqs() -> None:
    limits = EndpointLimits()
    assert (limits.channels, limits.frame_max, limits.heartbeat) == (2047, 131_072, 60)
    assert limits.transaction == Limits()
    with pytest.raises(FrozenInstanceError):
        limits.channels = 1  # type: ignore[misc]


def test_a_verdict_without_a_user_is_a_refusal() -> None:
    assert Verdict("u").user == "u"
    assert Verdict(None, "why").reason == "why"


@pytest.mark.parametrize("header", PROTOCOLS, ids=repr)
def test_every_protocol_has_the_attributes_that_the_server_uses(header: bytes) -> None:
    """Mypy compares the signatures; this test also covers attributes that constructors set."""
    server = SimServer(MemoryStorage(random.Random(1)))
    endpoint = PROTOCOLS[header](server, Peer("h", 1))
    asked = {name for name in vars(Endpoint) if not name.startswith("_")} | set(get_type_hints(Endpoint))
    assert asked >= {"receive", "output", "finished", "synced", "congested", "block", "tick", "shut", "lost", "label"}
    assert [name for name in sorted(asked) if not hasattr(endpoint, name)] == []
    assert endpoint.output() == []
    endpoint.lost()
