"""The configuration without any setting."""

from __future__ import annotations

from escrowmq.wire.endpoint import EndpointLimits
from escrowmq.wire.rocketmq.options import RocketmqOptions


def test_clients_without_a_key_act_as_guest_in_the_first_virtual_host() -> None:
    options = EndpointLimits().rocketmq
    assert options == RocketmqOptions()
    assert (options.vhost, options.anonymous_user) == ("/", "guest")
