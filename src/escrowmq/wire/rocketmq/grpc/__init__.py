"""RocketMQ's gRPC protocol, apache.rocketmq.v2, as the clients of version 5 speak it."""
