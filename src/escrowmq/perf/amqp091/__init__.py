"""AMQP 0-9-1 for the load tool. The rest of the tool uses only its `RunSession`."""
