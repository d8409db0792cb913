"""The pure core: queues, exchanges, transactions. No socket, file, clock, randomness or wire format."""
