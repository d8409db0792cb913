"""AMQP 0-9-1: codec and endpoint."""
