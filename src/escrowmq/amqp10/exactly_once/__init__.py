"""Exactly once from table to queue and from queue to table: the outbox and inbox patterns over resumed links."""

from escrowmq.amqp10.exactly_once.database import Database
from escrowmq.amqp10.exactly_once.receiver import ExactlyOnceReceiver
from escrowmq.amqp10.exactly_once.sender import ExactlyOnceSender

__all__ = ["Database", "ExactlyOnceReceiver", "ExactlyOnceSender"]
