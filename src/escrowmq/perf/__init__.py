"""`escrowmq perf`: a load tool for any AMQP 0-9-1 broker, which costs far less than the broker that it measures."""
