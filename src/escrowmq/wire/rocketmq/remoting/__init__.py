"""Classic remoting: the protocol of RocketMQ's 4.x clients, with the name server in the broker."""
