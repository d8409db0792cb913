"""RocketMQ over gRPC: sends, transactions, and messages that are received and acknowledged."""
