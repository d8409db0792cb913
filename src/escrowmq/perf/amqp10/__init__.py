"""AMQP 1.0 for the load tool. The rest of the tool uses only its `RunSession`."""
