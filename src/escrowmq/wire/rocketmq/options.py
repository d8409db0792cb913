"""The settings of both RocketMQ protocols."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RocketmqOptions:
    """What clients of RocketMQ are told, and what they may do.

    `advertised_host` is the address that clients are told to connect to; empty for the one that they have reached.
    `anonymous_user` is the user of clients without an access key; empty refuses them.
    """

    vhost: str = "/"
    anonymous_user: str = "guest"
    guest_loopback_only: bool = True
    auto_create: bool = True
    partitions: int = 8
    cluster: str = "DefaultCluster"
    broker_name: str = "escrowmq"
    advertised_host: str = ""
    broker_port: int = 10_911
    held_pulls: int = 4096  # requests of one connection that wait for messages
    producers: int = 1024  # groups and topics of one client
