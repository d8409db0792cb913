"""AMQP 0-10: sessions, commands with completion, and distributed transactions."""
