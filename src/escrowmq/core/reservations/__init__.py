"""Reservations: messages that bulk readers, such as Spark, have set aside for themselves (PIPE-1)."""
