"""AMQP 1.0 as a state machine without I/O: bytes in, events and bytes out. Every face of the client drives this one."""
