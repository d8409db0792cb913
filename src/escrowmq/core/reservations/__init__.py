"""Reservations: messages that bulk readers, such as Spark, have taken from a queue durably (PIPE-1)."""
