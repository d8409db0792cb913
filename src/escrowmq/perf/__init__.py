"""`escrowmq perf`: a load tool for any broker of AMQP 0-9-1, 0-10 or 1.0, which costs far less than that broker."""
