"""AMQP 0-9-1 for simulated worlds."""

from __future__ import annotations

from typing import Final

from escrowmq.wire.amqp091.connection import Connection
from tests.simulation.amqp091.actor import Actor
from tests.simulation.amqp091.oracle import Oracle
from tests.simulation.dialect import Dialect

AMQP091: Final = Dialect(Connection, Actor, Oracle)
