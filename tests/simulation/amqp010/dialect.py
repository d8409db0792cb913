"""AMQP 0-10 for simulated worlds."""

from __future__ import annotations

from typing import Final

from escrowmq.wire.amqp010.connection import Connection
from tests.simulation.amqp010.actor import Actor
from tests.simulation.amqp010.observer import Observer
from tests.simulation.dialect import Dialect

AMQP010: Final = Dialect(Connection, Actor, Observer)
