"""RocketMQ: what its two protocols, classic remoting and gRPC, have in common, and the protocols themselves."""
