"""AMQP 0-10 for the load tool. The rest of the tool uses only its `RunSession`."""
