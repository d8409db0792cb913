"""AMQP 0-9-1 for the load tool; the rest of the tool sees it as a `RunSession` alone."""
