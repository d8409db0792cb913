"""The messages of RocketMQ's gRPC protocol: `.proto` texts, and the modules that tools/gen_proto.py writes of them."""
