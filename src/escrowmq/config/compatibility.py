"""The settings for clients that were written for another broker."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from escrowmq.config.values import Section, Version


class CompatibilitySection(Section):
    """Concessions to clients that were written for another broker."""

    rabbitmq_version: Version = Field(
        default="",
        description="If it is set, for example to `4.2.0`, AMQP 1.0 clients are told that this is RabbitMQ of that "
        "version. RabbitMQ's own AMQP 1.0 clients need it: the Python client refuses other products, the Java client "
        "refuses versions below 4.0.0, and both use a feature only from the version on in which RabbitMQ got it. The "
        "setting has further effects, which [the guide](guides/amqp10-management.md) lists. By default, clients are "
        "told the broker's own name and version.",
    )
    unknown_header: Literal["0-9-1", "0-10", "1.0"] = Field(
        default="0-9-1",
        description="The version of AMQP whose protocol header answers a client that does not send AMQP, before the "
        "broker closes the connection. An unknown version of AMQP is answered by the version of its own kind: 0-9-1, "
        "0-10 or 1.0.",
    )
