"""EscrowMQ: a transactional message broker."""

__version__ = "0.1.0"
