"""Types, composites, frames and message sections of AMQP 1.0: bytes to values and back."""
