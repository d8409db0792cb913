"""RocketMQ for the load tool, in both of its protocols. The rest of the tool uses only their `RunSession`."""
