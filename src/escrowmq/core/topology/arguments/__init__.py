"""RabbitMQ's x-arguments: a dialect of declarations that other protocols may ignore."""
