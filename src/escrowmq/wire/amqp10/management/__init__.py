"""RabbitMQ 4's management node: HTTP requests in messages, over a pair of links to the address `/management`."""
